// Harness of a compiled `SensorDevice`: plays a microphone or a camera at its pins, and writes down what comes out.
#include "Vtop.h"
#include "sensor.h"
#include "verilated.h"

#include <cstdint>

namespace {

// An I2S microphone in the left slot: words of 24 bits, highest first, a bit clock behind the edge of the word select.
class Microphone {
  public:
    Microphone(const int32_t *words, uint64_t count) : words_(words), count_(count) {}
    uint32_t next(uint32_t pins) {
        const bool bclk = pins & 1, select = pins >> 1 & 1;
        if (bclk_ && !bclk) {
            index_ = select_ && !select ? 0 : index_ + 1;
            if (index_ == 0) word_ = number_ < count_ ? words_[number_++] : 0;
            data_ = !select && index_ >= 1 && index_ <= 24 && (word_ >> (24 - index_) & 1);
            select_ = select;
        }
        bclk_ = bclk;
        return data_;
    }

  private:
    const int32_t *words_;
    uint64_t count_, number_ = 0;
    int32_t word_ = 0;
    int index_ = 64;
    bool bclk_ = false, select_ = true, data_ = false;
};

// A PDM microphone: the next bit where the clock falls.
class DensityMicrophone {
  public:
    DensityMicrophone(const int32_t *bits, uint64_t count) : bits_(bits), count_(count) {}
    uint32_t next(uint32_t clock) {
        if (clock_ && !clock) data_ = number_ < count_ ? bits_[number_++] : number_++ & 1;
        clock_ = clock;
        return data_;
    }

  private:
    const int32_t *bits_;
    uint64_t count_, number_ = 0;
    uint32_t clock_ = 1, data_ = 0;
};

// A camera: `vsync` is high between images, `href` while the pixels of a row come; pins change where `pclk` falls.
class Camera {
  public:
    Camera(const int32_t *pixels, uint64_t images, uint64_t width, uint64_t height, uint64_t half, uint64_t gap)
        : pixels_(pixels), images_(images), width_(width), height_(height), half_(half), gap_(gap) {}
    uint32_t next() {
        const uint64_t period = elapsed_ / (2 * half_);
        const bool pclk = elapsed_++ % (2 * half_) >= half_;
        const uint64_t row = width_ + BLANK, image = gap_ + BLANK + height_ * row;
        const uint64_t number = period / image, place = period % image;
        const bool vsync = place < gap_;
        if (number >= images_ || place < gap_ + BLANK) return pclk | vsync << 2 | NOISE << 3;
        const uint64_t y = (place - gap_ - BLANK) / row, x = (place - gap_ - BLANK) % row;
        if (x >= width_) return pclk | NOISE << 3;
        return pclk | 1 << 1 | uint32_t(pixels_[(number * height_ + y) * width_ + x]) << 3;
    }

  private:
    static constexpr uint64_t BLANK = 7; // pixel clocks between rows, and in front of the first
    static constexpr uint32_t NOISE = 0xA5; // what must not be read
    const int32_t *pixels_;
    uint64_t images_, width_, height_, half_, gap_, elapsed_ = 0;
};

// A serial receiver that samples each bit in its middle.
class Line {
  public:
    explicit Line(uint64_t divisor) : divisor_(divisor) {}
    bool next(bool level, uint8_t *byte) {
        if (!busy_) {
            busy_ = !level;
            elapsed_ = 0;
            return false;
        }
        const uint64_t bit = ++elapsed_ / divisor_;
        if (elapsed_ % divisor_ != divisor_ / 2) return false;
        if (bit >= 1 && bit <= 8) value_ = static_cast<uint8_t>(value_ >> 1 | level << 7);
        if (bit < 9) return false;
        busy_ = false;
        *byte = level ? value_ : 0; // without a stop bit it is no byte that anybody sends
        return true;
    }

  private:
    uint64_t divisor_, elapsed_ = 0;
    uint8_t value_ = 0;
    bool busy_ = false;
};

struct Record {
    uint8_t *bytes;
    uint64_t capacity;
    uint64_t count; // seen, more than the capacity when there are too many
    void add(uint8_t byte) {
        if (count < capacity) bytes[count] = byte;
        count++;
    }
};

} // namespace

struct nnhw_sensing {
    const int32_t *numbers; // words or bits of a microphone, or pixels
    uint64_t count; // words, bits or images
    uint64_t width, height, half, gap; // of a camera: pixels, cycles of half a pixel clock, pixel clocks between images
    uint64_t divisor; // cycles of a bit of the serial port
    uint64_t cycles;
    Record codes, labels, text;
};

extern "C" void nnhw_sense(nnhw_sensing *run) {
    VerilatedContext context;
    Vtop top{&context};
#ifdef NNHW_CAMERA
    Camera camera(run->numbers, run->count, run->width, run->height, run->half, run->gap);
#elif defined(NNHW_PDM)
    DensityMicrophone microphone(run->numbers, run->count);
#else
    Microphone microphone(run->numbers, run->count);
#endif
    Line line(run->divisor);
    bool changes = false;
    top.rst = 0;
    for (uint64_t cycle = 0; cycle < run->cycles; cycle++) {
        top.clk = 0;
        top.eval();
#ifdef NNHW_CAMERA
        top.pins_i = camera.next();
#else
        top.pins_i = microphone.next(top.pins_o);
#endif
        top.eval();
        uint8_t byte;
        if (top.written) run->codes.add(top.code);
        if (line.next(top.tx, &byte)) run->text.add(byte);
        if (top.changes != changes) run->labels.add(top.label);
        changes = top.changes;
        top.clk = 1;
        top.eval();
    }
    top.final();
}
