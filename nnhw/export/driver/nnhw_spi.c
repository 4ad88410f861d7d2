#include "nnhw_spi.h"

#include <string.h>

enum { IDENTIFY = 0x01, RESET = 0x02, DATA = 0x03, IDENTITY = 0x81, RESET_DONE = 0x82, RESULT = 0x83, TAKEN = 0x87 };
enum { CHUNK_BYTES = 16, ATTEMPTS = 4, IDENTITY_BYTES = 25, QUESTION_BYTES = 2048, WINDOW_FRAMES = @WINDOW@ };

static uint32_t crc_of(uint32_t crc, const uint8_t *data, size_t count)
{
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    while (count--) {
        crc ^= *data++;
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return crc;
}

static uint32_t little(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}

/* Take COBS off in place; return the bytes of the frame, 0 for a damaged one. */
static size_t uncobs(uint8_t *data, size_t count)
{
    size_t read = 0, written = 0;
    while (read < count) {
        size_t code = data[read++], end = read + code - 1;
        if (end > count)
            return 0;
        while (read < end)
            data[written++] = data[read++];
        if (code < 255 && read < count)
            data[written++] = 0;
    }
    return written;
}

static void act(nnhw_device *device, size_t count)
{
    /* The CRC begins with the session, which is not sent; that of session 0 is the plain one. */
    uint8_t *frame = device->frame;
    size_t payload;
    uint8_t first;
    uint32_t crc;
    if (count < 6) {
        device->fault = 1;
        return;
    }
    payload = count - 6;
    first = frame[0] == RESET_DONE ? frame[1] : device->session;
    crc = crc_of(0, &first, 1) ^ 0xffffffffu; /* session 0 leaves the usual start */
    if ((crc_of(crc, frame, count - 4) ^ 0xffffffffu) != little(frame + count - 4)) {
        device->fault = 1;
        return;
    }
    device->heard = 1;
    if (frame[0] == TAKEN) {
        device->taken = frame[1];
    } else if (frame[0] == RESULT && frame[1] == device->results && payload <= device->missing && device->owed) {
        memcpy(device->output, frame + 2, payload);
        device->output += payload;
        device->missing -= (uint32_t)payload;
        device->results++;
        device->owed--;
    } else if (frame[0] == RESET_DONE || frame[0] == IDENTITY) {
        if (frame[1] == device->token) {
            device->answer = frame[0];
            device->identity = payload == IDENTITY_BYTES ? frame + 2 : NULL;
        }
    } else {
        device->fault = 1;
    }
}

static void take(nnhw_device *device, const uint8_t *data, size_t count)
{
    while (count--) {
        uint8_t byte = *data++;
        if (byte) {
            if (device->have < NNHW_WIRE_BYTES)
                device->frame[device->have] = byte;
            if (device->have <= NNHW_WIRE_BYTES)
                device->have++;
        } else if (device->have) {
            size_t size = device->have <= NNHW_WIRE_BYTES ? uncobs(device->frame, device->have) : 0;
            device->have = 0;
            act(device, size);
            if (device->answer)
                return;
        }
    }
}

static void exchange(nnhw_device *device, const uint8_t *send, size_t count)
{
    uint8_t receive[CHUNK_BYTES];
    while (count) {
        size_t part = count < CHUNK_BYTES ? count : CHUNK_BYTES;
        device->port.transfer(device->port.context, send, receive, part);
        take(device, receive, part);
        send += part;
        count -= part;
    }
}

static void poll(nnhw_device *device)
{
    static const uint8_t nothing[CHUNK_BYTES] = {0};
    if (device->port.wait)
        device->port.wait(device->port.context);
    exchange(device, nothing, CHUNK_BYTES);
}

static void send_frame(nnhw_device *device, uint8_t command, uint8_t sequence, const uint8_t *payload, size_t count)
{
    uint8_t *wire = device->wire, head[2], tail[4];
    const uint8_t *parts[3];
    size_t sizes[3], part, place, code = 0, end = 1;
    uint32_t crc;
    head[0] = command;
    head[1] = sequence;
    crc = crc_of(crc_of(0xffffffffu, head, 2), payload, count) ^ 0xffffffffu;
    for (place = 0; place < 4; place++)
        tail[place] = (uint8_t)(crc >> 8 * place);
    parts[0] = head, parts[1] = payload, parts[2] = tail;
    sizes[0] = 2, sizes[1] = count, sizes[2] = 4;
    for (part = 0; part < 3; part++)
        for (place = 0; place < sizes[part]; place++) {
            wire[end] = parts[part][place];
            if (!wire[end]) {
                wire[code] = (uint8_t)(end - code);
                code = end;
            }
            end++;
        }
    wire[code] = (uint8_t)(end - code);
    wire[end++] = 0;
    exchange(device, wire, end);
}

static int ask(nnhw_device *device, uint8_t command)
{
    uint32_t read;
    uint8_t sequence = device->token;
    device->answer = 0;
    device->identity = NULL;
    send_frame(device, command, sequence, NULL, 0);
    for (read = 0; read < QUESTION_BYTES && device->answer != (command | 0x80); read += CHUNK_BYTES) {
        device->answer = 0;
        poll(device);
    }
    return device->answer == (command | 0x80);
}

static nnhw_status judge(const nnhw_device *device)
{
    const uint8_t *told = device->identity;
    if (!told || memcmp(told, "NNHW", 4))
        return NNHW_OTHER_DEVICE;
    if (told[4] != NNHW_PROTOCOL_VERSION)
        return NNHW_OTHER_VERSION;
    if (memcmp(told + 5, device->model->hash, 8) || little(told + 13) != device->model->input_bytes ||
        little(told + 17) != device->model->output_bytes)
        return NNHW_OTHER_MODEL;
    return NNHW_OK;
}

/* Begin a session: empty the device, and see who it is before anything else. */
static nnhw_status begin(nnhw_device *device)
{
    static const uint8_t delimiter = 0;
    int attempt;
    nnhw_status found = NNHW_NO_ANSWER;
    device->in_step = device->heard = 0;
    for (attempt = 0; attempt < ATTEMPTS; attempt++) {
        device->missing = 0;
        device->have = 0;
        device->token = (uint8_t)(device->token == 255 ? 1 : device->token + 1);
        exchange(device, &delimiter, 1); /* ends what was left unfinished */
        if (!ask(device, RESET))
            continue;
        device->session = device->token;
        device->sent = device->taken = device->results = 0;
        device->owed = 0;
        device->fault = 0;
        if (!ask(device, IDENTIFY))
            continue;
        found = judge(device);
        device->answer = 0;
        device->in_step = found == NNHW_OK;
        return found;
    }
    return device->heard ? NNHW_BAD_LINK : found;
}

nnhw_status nnhw_open(nnhw_device *device, const nnhw_port *port, const nnhw_model *model, uint8_t first_token)
{
    memset(device, 0, sizeof *device);
    device->token = first_token;
    device->port = *port;
    device->model = model;
    return begin(device);
}

/* Send images and take outputs until all are there; return 0 when something went wrong.
 * RESULT frames count modulo 256, so no more than WINDOW_FRAMES are on their way, or those of one image, which is not
 * complete while some are missing. A frame completes a quarter of that at most, so that the device is never idle. */
static int attempt(nnhw_device *device, const uint8_t *images, size_t count)
{
    const uint32_t size = device->model->input_bytes, o_size = device->model->output_bytes;
    const uint32_t results = o_size / NNHW_PAYLOAD_BYTES + (o_size % NNHW_PAYLOAD_BYTES != 0);
    const uint32_t together = results < WINDOW_FRAMES / 4 ? WINDOW_FRAMES / 4 / results : 1;
    const size_t most = size < NNHW_PAYLOAD_BYTES / together ? together * size : NNHW_PAYLOAD_BYTES;
    uint32_t begun = 0, silent = 0; /* bytes of the image that is sent in part; bytes without an answer */
    while (device->missing) {
        const size_t part = count < most ? count : most;
        const uint32_t more = (begun + (uint32_t)part) / size * results;
        device->heard = 0;
        if (count && device->taken == device->sent && (!device->owed || device->owed + more <= WINDOW_FRAMES)) {
            uint8_t sequence = device->sent++;
            device->owed += more;
            begun = (begun + (uint32_t)part) % size;
            send_frame(device, DATA, sequence, images, part);
            images += part;
            count -= part;
        } else {
            poll(device);
        }
        silent = device->heard ? 0 : silent + CHUNK_BYTES;
        if (device->fault || silent > device->model->patience_bytes)
            return 0;
    }
    return 1;
}

nnhw_status nnhw_infer(nnhw_device *device, const uint8_t *images, uint8_t *outputs, uint32_t count, uint32_t *done)
{
    const nnhw_model *model = device->model;
    uint32_t finished = 0, failures = 0;
    nnhw_status status = NNHW_OK;
    while (finished < count) {
        uint32_t before = finished, left = count - finished;
        status = device->in_step ? NNHW_OK : begin(device);
        if (status != NNHW_OK)
            break;
        device->output = outputs + (size_t)finished * model->output_bytes;
        device->missing = left * model->output_bytes;
        if (!attempt(device, images + (size_t)finished * model->input_bytes, (size_t)left * model->input_bytes)) {
            device->in_step = 0;
            device->faults++;
        }
        finished = count - (device->missing + model->output_bytes - 1) / model->output_bytes;
        failures = finished > before ? 0 : failures + 1;
        if (failures == ATTEMPTS) {
            status = NNHW_BAD_LINK;
            break;
        }
    }
    if (done)
        *done = finished;
    return status;
}
