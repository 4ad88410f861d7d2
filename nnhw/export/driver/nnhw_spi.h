/* Driver of an nnhw accelerator at an SPI port, for microcontrollers. C99, no library, no heap.
 *
 * SPI mode 0, highest bit first. Images and outputs are packed as the header of the model says.
 */
#ifndef NNHW_SPI_H
#define NNHW_SPI_H

#include <stddef.h>
#include <stdint.h>

#define NNHW_PROTOCOL_VERSION @VERSION@
#define NNHW_PAYLOAD_BYTES @PAYLOAD@
#define NNHW_WIRE_BYTES (NNHW_PAYLOAD_BYTES + 8)

typedef enum {
    NNHW_OK = 0,
    NNHW_NO_ANSWER = 1,     /* nothing that is a frame came: wiring, mode, clock, or no bitstream */
    NNHW_OTHER_DEVICE = 2,  /* it answers, but is no nnhw accelerator */
    NNHW_OTHER_VERSION = 3, /* an accelerator made by an nnhw with another protocol */
    NNHW_OTHER_MODEL = 4,   /* the bitstream is that of another model */
    NNHW_BAD_LINK = 5       /* faults came too often without getting any further */
} nnhw_status;

/* The bitstream that the driver was exported for. `patience_bytes`: how many bytes are read in vain before a fault. */
typedef struct {
    uint8_t hash[8];
    uint32_t input_bytes, output_bytes, patience_bytes;
} nnhw_model;

/* How bytes get there. `transfer` selects the device, exchanges `count` bytes, and lets go of it.
 * `wait`, which may be NULL, returns when the interrupt line is high, or after some milliseconds at the latest. */
typedef struct {
    void (*transfer)(void *context, const uint8_t *send, uint8_t *receive, size_t count);
    void (*wait)(void *context);
    void *context;
} nnhw_port;

typedef struct {
    nnhw_port port;
    const nnhw_model *model;
    uint8_t token, session, in_step;
    uint8_t sent, taken, results;  /* frames since the last reset, modulo 256 */
    uint8_t fault, answer, heard;  /* of the frames received last */
    const uint8_t *identity;
    uint8_t *output;               /* where the next bytes of results go */
    uint32_t missing;              /* of them */
    uint32_t owed;                 /* RESULT frames still to come of the images that are sent */
    uint32_t faults;               /* that were repaired so far */
    uint16_t have;
    uint8_t frame[NNHW_WIRE_BYTES], wire[NNHW_WIRE_BYTES];
} nnhw_device;

/* Prepare a device, and see that it is the model's. Call it once, and again after the FPGA was programmed.
 * `first_token`: another number at every start, such as a random one, tells sessions of this start from older ones. */
nnhw_status nnhw_open(nnhw_device *device, const nnhw_port *port, const nnhw_model *model, uint8_t first_token);

/* Compute `count` images, one behind the other in memory; so are the outputs. `done`, which may be NULL, gets the number
 * of images whose outputs are right, which is `count` with NNHW_OK. */
nnhw_status nnhw_infer(nnhw_device *device, const uint8_t *images, uint8_t *outputs, uint32_t count, uint32_t *done);

#endif
