// Harness of compiled hardware: a component with a byte stream `i`, a byte stream `o`, and taps.
// The generated `taps.h` defines NNHW_TAP_COUNT and NNHW_TAPS(TAP), a call TAP(number, words) for each tap.
// The stall patterns are those of sim/stalls.py, bit for bit.
#include "Vtop.h"
#include "taps.h"
#include "verilated.h"

#include <cstddef>
#include <cstdint>
#include <string>

// Verilator writes the two underscores of the port names as _ _05F: `i__valid` is `i___05Fvalid`.
#define PORT(stream, member) stream##___05F##member

namespace {

class Stalls {
  public:
    Stalls(int pattern, uint32_t seed) : pattern_(pattern), word_(seed * 2654435761u) {
        if (word_ == 0) word_ = 1;
    }
    bool next() {
        switch (pattern_) {
        case 0: return true;
        case 1: return moving_ = !moving_;
        case 2: return random() >> 16 & 1;
        case 3:
            if ((random() >> 16 & 15) == 0) burst_ = !burst_;
            return burst_;
        default: return (random() >> 16 & 15) == 0;
        }
    }

  private:
    uint32_t random() {
        word_ ^= word_ << 13;
        word_ ^= word_ >> 17;
        word_ ^= word_ << 5;
        return word_;
    }
    int pattern_;
    uint32_t word_;
    bool moving_ = false, burst_ = true;
};

struct Hardware {
    VerilatedContext context;
    Vtop top{&context};
    uint64_t cycles = 0;

    // `contents`: folder of the files that memories are filled from, see `nnhw.flow.virtual.contents`.
    explicit Hardware(const char *contents) {
        const std::string argument = std::string("+contents=") + contents;
        const char *arguments[] = {"nnhw", argument.c_str()};
        context.commandArgs(2, arguments);
        top.clk = 0;
        top.rst = 0;
        top.PORT(i, valid) = 0;
        top.PORT(i, payload) = 0;
        top.PORT(o, ready) = 0;
        top.eval();
    }
    // Drive both streams and let the combinational logic settle.
    void drive(bool i_valid, uint64_t i_payload, bool o_ready) {
        top.clk = 0;
        top.PORT(i, valid) = i_valid;
        top.PORT(i, payload) = i_payload;
        top.PORT(o, ready) = o_ready;
        top.eval();
    }
    void edge() {
        top.clk = 1;
        top.eval();
        cycles++;
    }
};

template <typename T> void put(uint32_t *to, size_t words, const T &value) {
    for (size_t word = 0; word < words; word++) to[word] = static_cast<uint32_t>(static_cast<uint64_t>(value) >> (32 * word));
}
template <std::size_t N> void put(uint32_t *to, size_t words, const VlWide<N> &value) {
    for (size_t word = 0; word < words; word++) to[word] = value.at(word);
}

// Beat number `index` of a byte stream: its first byte is the lowest.
uint64_t beat(const uint8_t *bytes, uint64_t index, uint64_t beat_bytes) {
    uint64_t value = 0;
    for (uint64_t byte = 0; byte < beat_bytes; byte++) value |= uint64_t(bytes[index * beat_bytes + byte]) << (8 * byte);
    return value;
}

} // namespace

struct nnhw_tap {
    uint32_t *words; // of all beats, one after the other
    uint64_t capacity; // beats
    uint64_t beats; // beats seen, more than the capacity when there are too many
};

struct nnhw_run {
    const uint8_t *i_bytes;
    uint64_t i_count; // beats
    uint64_t i_taken;
    uint64_t i_beat_bytes; // at most 8
    uint8_t *o_bytes;
    uint64_t o_capacity;
    uint64_t o_count; // bytes seen, more than the capacity when there are too many
    uint64_t frame_bytes; // of the output
    uint64_t *frame_cycles; // cycle in which the last byte of each frame passed
    uint64_t first_cycle; // cycle in which the first byte was taken
    uint64_t broken_rules; // cycles in which a waiting output byte changed or went away
    uint64_t cycles;
    uint64_t limit_cycles;
    uint64_t idle_cycles; // to go on after the last expected byte, for bytes that nobody expects
    int32_t i_pattern, o_pattern;
    uint32_t i_seed, o_seed;
    nnhw_tap *taps;
    int32_t (*watch)(uint64_t bytes); // called every WATCH_CYCLES with the bytes of output seen; ends the run unless 0
};
constexpr uint64_t WATCH_CYCLES = 1 << 14;

extern "C" {

void *nnhw_create(const char *contents) { return new Hardware(contents); }
void nnhw_destroy(void *handle) { delete static_cast<Hardware *>(handle); }
uint64_t nnhw_cycles(void *handle) { return static_cast<Hardware *>(handle)->cycles; }

// Send bytes, collect what comes. Ends when all bytes are taken and `quiet_cycles` passed without a byte since the
// first one came, or when the budget of cycles is spent, or when the output is full. Returns the bytes collected.
uint64_t nnhw_transfer(void *handle, const uint8_t *i_bytes, uint64_t i_count, uint64_t *i_taken, uint8_t *o_bytes,
                       uint64_t o_capacity, uint64_t budget_cycles, uint64_t quiet_cycles) {
    auto &hardware = *static_cast<Hardware *>(handle);
    auto &top = hardware.top;
    uint64_t taken = 0, count = 0, quiet = 0;
    for (uint64_t cycle = 0; cycle < budget_cycles && count < o_capacity; cycle++) {
        const bool offering = taken < i_count;
        if (!offering && count > 0 && quiet >= quiet_cycles) break;
        hardware.drive(offering, offering ? i_bytes[taken] : 0, true);
        taken += offering && top.PORT(i, ready);
        quiet++;
        if (top.PORT(o, valid)) {
            o_bytes[count++] = top.PORT(o, payload);
            quiet = 0;
        }
        hardware.edge();
    }
    *i_taken = taken;
    return count;
}

// Send frames back to back under stall patterns on both sides; record every tap, every byte, and when it passed.
void nnhw_stream(void *handle, nnhw_run *run) {
    auto &hardware = *static_cast<Hardware *>(handle);
    auto &top = hardware.top;
    Stalls source(run->i_pattern, run->i_seed), sink(run->o_pattern, run->o_seed);
    bool offering = false, waiting = false;
    uint8_t held = 0;
    uint64_t idle = 0;
    for (run->cycles = 0; run->cycles < run->limit_cycles && idle <= run->idle_cycles; run->cycles++) {
        if (run->cycles % WATCH_CYCLES == 0 && run->watch(run->o_count)) break;
        const bool left = run->i_taken < run->i_count;
        if (!offering) offering = left && source.next();
        const bool o_ready = sink.next();
        // Between beats the payload is garbage.
        const uint64_t payload = offering ? beat(run->i_bytes, run->i_taken, run->i_beat_bytes) : run->cycles & 0xff;
        hardware.drive(offering, payload, o_ready);
        const bool o_valid = top.PORT(o, valid);
        const uint8_t byte = top.PORT(o, payload);
        run->broken_rules += waiting && (!o_valid || byte != held);
        waiting = o_valid && !o_ready;
        held = byte;
        if (o_valid && o_ready) {
            if (run->o_count < run->o_capacity) run->o_bytes[run->o_count] = byte;
            run->o_count++;
            if (run->o_count <= run->o_capacity && run->o_count % run->frame_bytes == 0)
                run->frame_cycles[run->o_count / run->frame_bytes - 1] = run->cycles;
        }
#define TAP(number, words_)                                                                                            \
    if (top.tap_##number##_valid) {                                                                                    \
        nnhw_tap &tap = run->taps[number];                                                                             \
        if (tap.beats < tap.capacity) put(tap.words + tap.beats * (words_), (words_), top.tap_##number##_payload);     \
        tap.beats++;                                                                                                   \
    }
        NNHW_TAPS(TAP)
        if (offering && top.PORT(i, ready)) {
            if (run->i_taken == 0) run->first_cycle = run->cycles;
            run->i_taken++;
            offering = false;
        }
        idle = run->i_taken == run->i_count && run->o_count >= run->o_capacity ? idle + 1 : 0;
        hardware.edge();
    }
}
}
