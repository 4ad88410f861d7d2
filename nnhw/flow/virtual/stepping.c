// Cycle models of engines and the network that steps them, for long runs. Each does what its class in nnhw/engines does,
// which says more, and tests compare both to the cycle. A model is a few numbers, and a queue of moves for pipelines.
//
// In most cycles most models only count: beats of a row, of a sum, or cycles of latency. Such a model is not stepped until
// something else happens in it, or at its sides; the cycles in which it counted are then passed at once (`pass`).

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t num;

enum kind { PIPELINE, REGISTER, FIFO, WINDOW, POOL, PAD, SLICE, ROW, UNPACK, FORK, JOINED, CONCAT, BROADCAST, SHARED, STATE };

// A ring of moves in which results reach the output buffer, ascending. Its room is a power of two: dividing by any other
// number would take as long as all else that a model does in a cycle.
struct queue { num *items, room, first, count; };

static void push(struct queue *q, num item) {
    if (q->count == q->room) {
        num room = q->room ? 2 * q->room : 16;
        num *items = malloc(room * sizeof(num));
        for (num k = 0; k < q->count; k++) items[k] = q->items[(q->first + k) & (q->room - 1)];
        free(q->items);
        q->items = items, q->room = room, q->first = 0;
    }
    q->items[(q->first + q->count++) & (q->room - 1)] = item;
}

static num front(const struct queue *q) { return q->items[q->first]; }

static void pop(struct queue *q) { q->first = (q->first + 1) & (q->room - 1), q->count--; }

// The number behind `place`, of `count` that follow one another for ever.
static num next(num place, num count) { return place + 1 == count ? 0 : place + 1; }

struct pipeline { num latency, period, silent, burst, beat, move, buffered; struct queue due; };

static int pipeline_step(struct pipeline *p, int i_valid, int o_ready) {
    if (p->buffered == 2) {
        p->buffered -= o_ready;
        return o_ready;
    }
    int changed = i_valid;
    if (o_ready && p->buffered) p->buffered = 0, changed = 1;
    p->move++;
    if (i_valid) {
        if (p->beat >= p->silent)
            for (num k = 0; k < p->burst; k++) push(&p->due, p->move + p->latency - 1 + k);
        if (++p->beat == p->period) p->beat = 0;
    }
    if (p->due.count) {
        changed = 1;
        if (front(&p->due) == p->move) pop(&p->due), p->buffered++;
    }
    return changed;
}

// The parameters of each kind, in the order in which Python gives them, then its state; all of the state is 0 at first
// but what `net_add` sets.
struct node {
    enum kind kind;
    int inputs, outputs, held;
    int *in, *out;
    uint8_t *valid;     // of each output
    num since;          // the first cycle in which it only counted; -1: it has been stepped in every cycle so far
    num until;          // then: the cycle in which it is stepped again at the latest
    int fed, drained;   // then: whether its inputs were valid and its outputs ready
    struct pipeline line;
    num *table, size;   // PAD: whether a beat is inside; CONCAT: the input of each beat; SHARED: kind and cycles of each action
    union {
        struct { num take, give, taken, left; } reg;
        struct { num words, large, pause, level, high_water, was_full; } fifo;
        struct { num row_words, row_beats, block_rows, rows_step, rows_left, large, reads, room, surplus;
                 num pause, since, word, block_row, beat, completed, freed; } window;
        struct { num period, silent, beat; } pool;
        struct { num beat; } pad;
        struct { num period, first, end, beat; } slice;
        struct { num chunks, words, done, level, taken, given, waited; } row;
        struct { num steps, i_steps, o_steps, o_beats, base, beat; } unpack;
        struct { num constants, beat; } concat;
        struct { num beats, start, beat, started; } broadcast;
        struct { num left, place, buffered; } shared;
        struct { num chunks, beats, words, level, beat; } state;
    } is;
};

struct net {
    struct node *nodes;
    int count, wires, models, counting;  // the last: how many models only count
    uint8_t *valids, *readies;
    uint64_t *awake;     // a bit for each model
    uint64_t *wheel;     // the models to be woken in each of the next cycles, as often as there are words in `awake`
    int *late, lates;    // wires that lead backwards: their source is stepped before their reader is
    uint8_t *seen;       // of each of them: its valid when the cycle began, which its reader sees
    int *readers, *writers;
    num *beats, *left, cycle;
    struct queue *ends;  // of each wire: the cycles in which its frames ended
};

static int all(const uint8_t *flags, int count) {
    for (int k = 0; k < count; k++)
        if (!flags[k]) return 0;
    return 1;
}

enum action { WAIT, TAKE, GIVE };

static int shared_step(struct node *n, int i_valid, int o_ready) {
    num kind = n->table[n->is.shared.place];
    int gives = kind == GIVE && n->is.shared.buffered < 2, leaves = n->valid[0] && o_ready;
    int moves = gives || kind == WAIT || (kind == TAKE && i_valid);
    n->is.shared.buffered += gives - leaves;
    n->valid[0] = n->is.shared.buffered > 0;
    n->is.shared.left -= moves;
    // Some actions take no cycle.
    while (!n->is.shared.left) {
        n->is.shared.place = (n->is.shared.place + 2) % n->size;
        n->is.shared.left = n->table[n->is.shared.place + 1];
    }
    return moves || leaves;
}

static int state_reads(const struct node *n, int head, int o_ready) {
    // The head stays for the first step of a frame; the steps behind it need none.
    int begun = head || n->is.state.beat >= n->is.state.chunks;
    return begun && n->is.state.level > 0 && (o_ready || !n->valid[0]);
}

static int state_step(struct node *n, const uint8_t *i, int o_ready) {
    int before = n->valid[0], read = state_reads(n, i[0], o_ready);
    int write = i[1] && n->is.state.level < n->is.state.words;
    if (o_ready || !before) n->valid[0] = read;
    n->is.state.level += write - read;
    if (read) n->is.state.beat = next(n->is.state.beat, n->is.state.beats);
    return write || read || before != n->valid[0];
}

static int unpack_last(const struct node *n) { return n->is.unpack.beat == n->is.unpack.o_beats - 1; }

static int concat_may(const struct node *n, num turn, const uint8_t *i) {
    return turn >= n->is.concat.constants || i[n->is.concat.constants];
}

// What a model answers at its inputs, from the valids at these and the readies at its outputs.
static void ready(const struct node *n, const uint8_t *i, const uint8_t *o, uint8_t *answer) {
    int valid = n->valid[0], yes = 0;
    switch (n->kind) {
    case PIPELINE: yes = n->line.buffered < 2; break;
    case REGISTER: yes = !valid || (o[0] && n->is.reg.left == 1); break;
    case FIFO: yes = n->is.fifo.level < n->is.fifo.words && (!n->is.fifo.large || n->is.fifo.pause || !n->is.fifo.level); break;
    case WINDOW: yes = n->is.window.room > 0 && (!n->is.window.large || n->is.window.pause || n->is.window.surplus < 0); break;
    case POOL: yes = o[0] || !valid; break;
    case PAD: yes = (o[0] || !valid) && n->table[n->is.pad.beat]; break;
    case SLICE: yes = o[0] || !valid || n->is.slice.beat < n->is.slice.first || n->is.slice.beat >= n->is.slice.end; break;
    case ROW: yes = n->is.row.level < n->is.row.words; break;
    case UNPACK: yes = !valid || (o[0] && (n->is.unpack.base + n->is.unpack.o_steps >= n->is.unpack.i_steps || unpack_last(n))); break;
    case FORK:
        yes = 1;
        for (int k = 0; k < n->outputs; k++) yes &= !(n->valid[k] && !o[k]);
        break;
    case JOINED: yes = n->line.buffered < 2 && all(i, n->inputs); break;
    case CONCAT: {
        num turn = n->table[n->is.concat.beat];
        memset(answer, 0, n->inputs);
        answer[turn] = (o[0] || !valid) && concat_may(n, turn, i);
        return;
    }
    case STATE:
        answer[0] = n->is.state.beat == n->is.state.chunks - 1 && state_reads(n, i[0], o[0]);
        answer[1] = n->is.state.level < n->is.state.words;
        return;
    case BROADCAST: return;
    case SHARED: yes = n->table[n->is.shared.place] == TAKE; break;
    }
    memset(answer, yes, n->inputs);
}

static int fifo_step(struct node *n, int i_valid, int o_ready) {
    int before = n->valid[0];
    num level = n->is.fifo.level;
    if (n->is.fifo.large) {
        num pause = n->is.fifo.pause;
        int write = i_valid && level < n->is.fifo.words && (pause || !level);
        int move = o_ready || !before, read = move && level > 0 && !pause;
        if (move) n->valid[0] = read;
        n->is.fifo.pause = read || !move;
        n->is.fifo.level += write - read;
        return write || read || before != n->valid[0] || pause != n->is.fifo.pause;
    }
    int write = i_valid && level < n->is.fifo.words;
    if (write) {
        if (level + 2 > n->is.fifo.high_water) n->is.fifo.high_water = level + 2;
    } else if (i_valid) {
        n->is.fifo.was_full = 1;
    }
    if (o_ready || !before) {
        n->valid[0] = level > 0;
        n->is.fifo.level = level + write - n->valid[0];
        return write || before || n->valid[0];
    }
    n->is.fifo.level = level + write;
    return write;
}

static int window_step(struct node *n, int i_valid, int o_ready) {
    int before = n->valid[0];
    num paused = n->is.window.pause, told = n->is.window.completed || n->is.window.freed;
    int move = o_ready || !before;
    int write = i_valid && n->is.window.room > 0 && (!n->is.window.large || paused || n->is.window.surplus < 0);
    int read = move && n->is.window.surplus >= 0 && !paused;
    if (n->is.window.large) {
        n->is.window.since += read;
        int full = n->is.window.since == n->is.window.reads;
        n->is.window.pause = full || !move;
        if (full) n->is.window.since = 0;
    }
    num completed = 0, freed = 0;
    if (write) {
        n->is.window.room--;
        if (++n->is.window.word == n->is.window.row_words) n->is.window.word = 0, completed = 1;
    }
    if (move) n->valid[0] = read;
    if (read && ++n->is.window.beat == n->is.window.row_beats) {
        n->is.window.beat = 0;
        n->is.window.block_row = next(n->is.window.block_row, n->is.window.block_rows);
        freed = n->is.window.block_row ? n->is.window.rows_step : n->is.window.rows_left;
        n->is.window.surplus -= freed;
    }
    if (told) {
        n->is.window.room += n->is.window.freed * n->is.window.row_words;
        n->is.window.surplus += n->is.window.completed;
    }
    n->is.window.completed = completed, n->is.window.freed = freed;
    return write || read || told || before != n->valid[0] || paused != n->is.window.pause;
}

static int row_step(struct node *n, int i_valid, int o_ready) {
    int take = i_valid && n->is.row.level < n->is.row.words;
    int wanted = n->is.row.given > 0 || n->is.row.waited == n->is.row.done;
    int read = wanted && n->line.buffered < 2;
    int moved = pipeline_step(&n->line, wanted, o_ready);
    int solving = 0 < n->is.row.waited && n->is.row.waited < n->is.row.done;
    n->is.row.waited += solving;
    if (read) {
        if (!n->is.row.given) n->is.row.waited = 0;
        n->is.row.given = next(n->is.row.given, n->is.row.chunks);
    }
    if (take) {
        n->is.row.taken = next(n->is.row.taken, n->is.row.chunks);
        if (!n->is.row.taken) n->is.row.waited = 1;
    }
    n->is.row.level += take - read;
    n->valid[0] = n->line.buffered > 0;
    return take || moved || solving;
}

static int unpack_step(struct node *n, int i_valid, int o_ready) {
    uint8_t o = o_ready, i = i_valid, answer;
    ready(n, &i, &o, &answer);
    int take = i_valid && answer, give = n->valid[0] && o_ready, last = unpack_last(n);
    if (give) {
        n->is.unpack.base = last ? n->is.unpack.steps : n->is.unpack.base + n->is.unpack.o_steps;
        n->is.unpack.beat = last ? 0 : n->is.unpack.beat + 1;
    }
    n->is.unpack.base -= take * n->is.unpack.i_steps;
    n->valid[0] = n->is.unpack.base < n->is.unpack.i_steps;
    return take || give;
}

static int fork_step(struct node *n, int i_valid, const uint8_t *o) {
    int any = 0, changed = 0;
    for (int k = 0; k < n->outputs; k++) any |= n->valid[k] && !o[k];
    for (int k = 0; k < n->outputs; k++) {
        int pending = n->valid[k] && !o[k], after = i_valid && !any ? 1 : pending;
        changed |= after != n->valid[k] || pending != n->valid[k];
        n->valid[k] = after;
    }
    return changed;
}

// Pass one clock edge; return 0 only if nothing changed.
static int step(struct node *n, const uint8_t *i, const uint8_t *o) {
    int before = n->valid[0], i_valid = n->inputs ? i[0] : 0, changed;
    switch (n->kind) {
    case PIPELINE:
    case JOINED:
        changed = pipeline_step(&n->line, n->kind == JOINED ? all(i, n->inputs) : i_valid, o[0]);
        n->valid[0] = n->line.buffered > 0;
        return changed;
    case REGISTER: {
        int take = i_valid && (!before || (o[0] && n->is.reg.left == 1)), give = before && o[0];
        n->is.reg.left -= give;
        if (take && ++n->is.reg.taken == n->is.reg.take) n->is.reg.taken = 0, n->is.reg.left = n->is.reg.give;
        n->valid[0] = n->is.reg.left > 0;
        return take || give;
    }
    case FIFO: return fifo_step(n, i_valid, o[0]);
    case WINDOW: return window_step(n, i_valid, o[0]);
    case POOL:
        if (before && !o[0]) return 0;
        n->valid[0] = i_valid && n->is.pool.beat >= n->is.pool.silent;
        if (i_valid) n->is.pool.beat = next(n->is.pool.beat, n->is.pool.period);
        return before || i_valid;
    case PAD:
        if (before && !o[0]) return 0;
        n->valid[0] = i_valid || (n->is.pad.beat && !n->table[n->is.pad.beat]);
        if (n->valid[0]) n->is.pad.beat = next(n->is.pad.beat, n->size);
        return before || n->valid[0];
    case SLICE: {
        int stays = n->is.slice.first <= n->is.slice.beat && n->is.slice.beat < n->is.slice.end;
        int taken = i_valid && (o[0] || !before || !stays);
        if (o[0] || !before) n->valid[0] = taken && stays;
        if (taken) n->is.slice.beat = next(n->is.slice.beat, n->is.slice.period);
        return taken || (before && o[0]);
    }
    case ROW: return row_step(n, i_valid, o[0]);
    case UNPACK: return unpack_step(n, i_valid, o[0]);
    case FORK: return fork_step(n, i_valid, o);
    case CONCAT: {
        if (before && !o[0]) return 0;
        num turn = n->table[n->is.concat.beat];
        int taken = i[turn] && concat_may(n, turn, i);
        n->valid[0] = taken;
        if (taken) n->is.concat.beat = next(n->is.concat.beat, n->size);
        return before || taken;
    }
    case BROADCAST:
        if (n->is.broadcast.started < n->is.broadcast.start) {
            n->valid[0] = ++n->is.broadcast.started == n->is.broadcast.start;
            return 1;
        }
        if (o[0]) n->is.broadcast.beat = next(n->is.broadcast.beat, n->is.broadcast.beats);
        return o[0];
    case SHARED: return shared_step(n, i_valid, o[0]);
    case STATE: return state_step(n, i, o[0]);
    }
    return 0;
}

enum { WHEEL = 1024 };  // cycles for which a model may only count; a power of two

static num least(num a, num b) { return a < b ? a : b; }

// The numbers from `place` on, of `size`, that equal the one there, without the last of all, behind which it begins anew.
static num run_of(const num *table, num place, num size) {
    num k = 0;
    while (k < WHEEL && place + k < size - 1 && table[place + k] == table[place]) k++;
    return k;
}

// The cycles from the next one on in which a model only counts, while valids and readies at its sides stay: it changes in
// each, what it shows stays, and so does what it answers from its present state on. 0 where that is not known.
static num counts(const struct node *n, const uint8_t *i, const uint8_t *o) {
    int valid = n->valid[0], moves = o[0] || !valid;
    num k = WHEEL - 2;
    switch (n->kind) {
    case PIPELINE:
    case JOINED: {
        const struct pipeline *p = &n->line;
        int fed = all(i, n->inputs);
        if (p->buffered == 2 || (p->buffered && o[0]) || !(fed || p->due.count)) return 0;
        if (fed) k = least(k, least(p->silent, p->period - 1) - p->beat);
        return p->due.count ? least(k, front(&p->due) - p->move - 1) : k;
    }
    case REGISTER:
        if (!valid) return i[0] ? least(k, n->is.reg.take - 1 - n->is.reg.taken) : 0;
        return o[0] ? least(k, n->is.reg.left - 1) : 0;
    case FIFO: {
        num level = n->is.fifo.level, free = n->is.fifo.words - level;
        if (n->is.fifo.large || free <= 0 || !valid) return 0;
        if (!o[0]) return i[0] ? least(k, free) : 0;
        return level && i[0] ? k : least(k, level);
    }
    case WINDOW: {
        int write = i[0] && n->is.window.room > 0, read = moves && n->is.window.surplus >= 0;
        if (n->is.window.large || n->is.window.completed || n->is.window.freed) return 0;
        if ((moves && read != valid) || !(write || read)) return 0;
        if (write) k = least(k, least(n->is.window.room, n->is.window.row_words - 1 - n->is.window.word));
        return read ? least(k, n->is.window.row_beats - 1 - n->is.window.beat) : k;
    }
    case POOL:
        if (!moves || !i[0] || (n->is.pool.beat >= n->is.pool.silent) != valid) return 0;
        return least(k, (valid ? n->is.pool.period - 1 : least(n->is.pool.silent, n->is.pool.period - 1)) - n->is.pool.beat);
    case PAD:
        if (!valid || !o[0] || !n->is.pad.beat || !(i[0] || !n->table[n->is.pad.beat])) return 0;
        return least(k, run_of(n->table, n->is.pad.beat, n->size));
    case SLICE: {
        num beat = n->is.slice.beat, end = n->is.slice.period - 1;
        int stays = n->is.slice.first <= beat && beat < n->is.slice.end;
        if (!i[0] || (moves && stays != valid) || (stays && !moves)) return 0;
        return least(k, least(end, stays ? n->is.slice.end : beat < n->is.slice.first ? n->is.slice.first : end) - beat);
    }
    case UNPACK: {
        num base = n->is.unpack.base, i_steps = n->is.unpack.i_steps, o_steps = n->is.unpack.o_steps;
        if (!valid) return i[0] ? least(k, base / i_steps - 1) : 0;
        if (!o[0]) return 0;
        return least(k, least((i_steps - base + o_steps - 1) / o_steps - 1, n->is.unpack.o_beats - 1 - n->is.unpack.beat));
    }
    case FORK: return i[0] && all(o, n->outputs) && all(n->valid, n->outputs) ? k : 0;
    case CONCAT: {
        num turn = n->table[n->is.concat.beat];
        if (!valid || !o[0] || !i[turn] || !concat_may(n, turn, i)) return 0;
        return least(k, run_of(n->table, n->is.concat.beat, n->size));
    }
    case BROADCAST: return valid && o[0] ? k : 0;
    default: return 0;
    }
}

// Pass so many of the cycles that `counts` tells.
static void pass(struct node *n, num k) {
    int i = n->fed, o = n->drained;
    switch (n->kind) {
    case PIPELINE:
    case JOINED: n->line.move += k, n->line.beat += i ? k : 0; return;
    case REGISTER:
        if (n->valid[0]) n->is.reg.left -= k;
        else n->is.reg.taken += k;
        return;
    case FIFO: {
        num grows = i - o, most = n->is.fifo.level + 2 + (grows > 0 ? k - 1 : 0);
        if (i && most > n->is.fifo.high_water) n->is.fifo.high_water = most;
        n->is.fifo.level += grows * k;
        return;
    }
    case WINDOW:
        if (i && n->is.window.room > 0) n->is.window.room -= k, n->is.window.word += k;
        if ((o || !n->valid[0]) && n->is.window.surplus >= 0) n->is.window.beat += k;
        return;
    case POOL: n->is.pool.beat += k; return;
    case PAD: n->is.pad.beat += k; return;
    case SLICE: n->is.slice.beat += k; return;
    case UNPACK:
        if (n->valid[0]) n->is.unpack.base += k * n->is.unpack.o_steps, n->is.unpack.beat += k;
        else n->is.unpack.base -= k * n->is.unpack.i_steps;
        return;
    case CONCAT: n->is.concat.beat += k; return;
    case BROADCAST: n->is.broadcast.beat = (n->is.broadcast.beat + k) % n->is.broadcast.beats; return;
    default: return;
    }
}

// Networks. Wire 0 is the input, the last one the output.

enum { GROUP = 64 };  // models that are asked together whether they sleep

static int groups(const struct net *net) { return (net->models + GROUP - 1) / GROUP; }

static void wake(uint64_t *row, int index) { row[index / GROUP] |= (uint64_t)1 << index % GROUP; }

static void clear(uint64_t *row, int index) { row[index / GROUP] &= ~((uint64_t)1 << index % GROUP); }

struct net *net_new(int models, int wires) {
    struct net *net = calloc(1, sizeof *net);
    // What is at the ends of the network counts as a model that is never stepped, so it is in no group of models.
    net->nodes = calloc(models, sizeof *net->nodes);
    net->wires = wires, net->models = models;
    int outside = GROUP * groups(net);
    net->valids = calloc(wires, 1), net->readies = malloc(wires);
    net->awake = calloc(groups(net) + 1, sizeof(uint64_t));
    net->wheel = calloc(WHEEL * groups(net), sizeof(uint64_t));
    net->late = calloc(wires, sizeof(int)), net->seen = calloc(wires, 1);
    net->readers = malloc(wires * sizeof(int)), net->writers = malloc(wires * sizeof(int));
    net->beats = malloc(wires * sizeof(num)), net->left = malloc(wires * sizeof(num));
    net->ends = calloc(wires, sizeof *net->ends);
    memset(net->readies, 1, wires);
    for (int wire = 0; wire < wires; wire++) {
        net->readers[wire] = net->writers[wire] = outside;
        net->beats[wire] = net->left[wire] = (num)1 << 62;
    }
    return net;
}

static const int PARAMETERS[] = {4, 2, 2, 9, 2, 0, 3, 3, 4, 0, 4, 1, 2, 1, 4};

// Add the model behind the others; `numbers` are its parameters and, for a row, those of its pipeline behind them.
void net_add(struct net *net, int kind, int inputs, const int *in, int outputs, const int *out, const num *numbers,
             const num *table, num size) {
    int index = net->count++;
    struct node *n = &net->nodes[index];
    n->kind = kind, n->inputs = inputs, n->outputs = outputs;
    n->in = malloc(inputs * sizeof(int) + 1), n->out = malloc(outputs * sizeof(int));
    memcpy(n->in, in, inputs * sizeof(int)), memcpy(n->out, out, outputs * sizeof(int));
    n->valid = calloc(outputs, 1), n->since = -1;
    n->table = malloc(size * sizeof(num) + 1), n->size = size;
    memcpy(n->table, table, size * sizeof(num));
    if (kind == PIPELINE || kind == JOINED) memcpy(&n->line, numbers, 4 * sizeof(num));
    else memcpy(&n->is, numbers, PARAMETERS[kind] * sizeof(num));
    if (kind == ROW) memcpy(&n->line, numbers + PARAMETERS[kind], 4 * sizeof(num));
    if (kind == FIFO) n->is.fifo.high_water = 3;
    if (kind == UNPACK) n->is.unpack.base = n->is.unpack.steps;
    for (int k = 0; k < inputs; k++) net->readers[in[k]] = index;
    for (int k = 0; k < outputs; k++) net->writers[out[k]] = index;
    wake(net->awake, index);
}

// Let a wire lead backwards; its model is one that is asked at the end of a cycle whether it is ready for the next one.
void net_late(struct net *net, int wire) { net->late[net->lates++] = wire; }

void net_beats(struct net *net, int wire, num beats) { net->beats[wire] = net->left[wire] = beats; }

void net_free(struct net *net) {
    for (int k = 0; k < net->count; k++) {
        struct node *n = &net->nodes[k];
        free(n->in), free(n->out), free(n->valid), free(n->table), free(n->line.due.items);
    }
    for (int wire = 0; wire < net->wires; wire++) free(net->ends[wire].items);
    free(net->nodes), free(net->valids), free(net->readies), free(net->awake), free(net->readers), free(net->writers);
    free(net->late), free(net->seen), free(net->beats), free(net->left), free(net->ends), free(net->wheel), free(net);
}

int net_still(const struct net *net) {
    for (int group = 0; group < groups(net); group++)
        if (net->awake[group]) return 0;
    return !net->counting;
}

// Let a model that only counted pass the cycles up to this one.
static void catch_up(struct net *net, int index) {
    struct node *n = &net->nodes[index];
    if (n->since < 0) return;
    num k = net->cycle - n->since;
    // Else it would be woken for nothing, and set the next alarm then.
    clear(net->wheel + groups(net) * (n->until % WHEEL), index);
    n->since = -1, net->counting--;
    if (!k) return;
    if (n->drained)
        for (int port = 0; port < n->outputs; port++)
            if (n->valid[port]) net->left[n->out[port]] -= k;
    pass(n, k);
}

static void catch_up_all(struct net *net) {
    for (int index = 0; index < net->count; index++)
        if (net->nodes[index].since >= 0) catch_up(net, index), wake(net->awake, index);
}

enum { MOST_WIRES = 64 };

// Let a model that has just changed sleep for as long as it only counts.
static void let_count(struct net *net, int index, const uint8_t *i, const uint8_t *o, const uint8_t *answer) {
    struct node *n = &net->nodes[index];
    // Networks with loops are short.
    num k = n->held || net->lates ? 0 : counts(n, i, o);
    // The end of a frame is noted by a step.
    for (int port = 0; port < n->outputs; port++)
        if (o[port] && n->valid[port]) k = least(k, net->left[n->out[port]] - 1);
    if (k > 0) {
        uint8_t after[MOST_WIRES];
        ready(n, i, o, after);
        if (!memcmp(after, answer, n->inputs)) {
            n->since = net->cycle + 1, n->until = n->since + k, n->fed = all(i, n->inputs), n->drained = o[0];
            wake(net->wheel + groups(net) * (n->until % WHEEL), index);
            net->counting++;
            return;
        }
    }
    wake(net->awake, index);
}

// Let a model see the wires at its sides, step it, and wake those that see something new of it.
static void node_step(struct net *net, int index) {
    uint8_t i[MOST_WIRES], o[MOST_WIRES], answer[MOST_WIRES];
    struct node *n = &net->nodes[index];
    catch_up(net, index);
    for (int k = 0; k < n->inputs; k++) i[k] = net->valids[n->in[k]];
    for (int k = 0; k < n->outputs; k++) {
        int wire = n->out[k];
        o[k] = net->readies[wire];
        if (o[k] && net->valids[wire] && !--net->left[wire])
            net->left[wire] = net->beats[wire], push(&net->ends[wire], net->cycle);
    }
    // A held model sees nobody ready, and shows nothing.
    if (n->held) memset(o, 0, n->outputs);
    int is_state = n->kind == STATE, wire = is_state ? n->in[1] : 0;
    if (is_state) i[1] = net->seen[wire];
    ready(n, i, o, answer);
    int changed = step(n, i, o);
    if (is_state) {
        // What feeds this input has been stepped: in the next cycle it must see the ready of that cycle.
        uint8_t after[2];
        ready(n, i, o, after);
        answer[1] = after[1];
        changed |= net->valids[wire] != net->seen[wire];
    }
    for (int k = 0; k < n->inputs; k++)
        if (net->readies[n->in[k]] != answer[k])
            net->readies[n->in[k]] = answer[k], wake(net->awake, net->writers[n->in[k]]);
    for (int k = 0; k < n->outputs; k++)
        if (!n->held && net->valids[n->out[k]] != n->valid[k])
            net->valids[n->out[k]] = n->valid[k], wake(net->awake, net->readers[n->out[k]]);
    if (changed) let_count(net, index, i, o, answer);
}

// Pass one clock edge; return whether a beat came in. From output to input, see _Network.step.
int net_step(struct net *net, int offered) {
    uint64_t *woken = net->wheel + groups(net) * (net->cycle % WHEEL);
    for (int k = 0; k < net->lates; k++) net->seen[net->late[k]] = net->valids[net->late[k]];
    if (net->valids[0] != offered) net->valids[0] = offered, wake(net->awake, net->readers[0]);
    for (int group = groups(net) - 1; group >= 0; group--) {
        net->awake[group] |= woken[group], woken[group] = 0;
        // Those behind the one that is stepped have passed this cycle.
        uint64_t front = ~(uint64_t)0, awake;
        while ((awake = net->awake[group] & front)) {
            int place = GROUP - 1 - __builtin_clzll(awake);
            front = ((uint64_t)1 << place) - 1;
            net->awake[group] &= ~((uint64_t)1 << place);
            node_step(net, GROUP * group + place);
        }
    }
    net->cycle++;
    return offered && net->readies[0];
}

// See run_network: return the frames that have ended, and the cycles of the first beat and of the ends.
num net_run(struct net *net, num left, num o_beats, num frames, num limit, int patient, num *first, num *finish) {
    num done = 0, ended = 0;
    int still = 1, output = net->wires - 1;
    *first = -1;
    while (net->cycle < limit) {
        if (net->valids[output] && ++done % o_beats == 0) {
            finish[ended++] = net->cycle;
            if (ended == frames) return ended;
        }
        int offered = left > 0 && (still || !patient);
        if (net_step(net, offered)) {
            left--;
            if (*first < 0) *first = net->cycle - 1;
        }
        still = net_still(net);
        if (still && !(patient && left && !offered)) break;
    }
    return ended;
}

// Step without input until nothing changes; return whether it came to that within so many cycles.
int net_rest(struct net *net, num limit) {
    for (num k = 0; k < limit; k++) {
        net_step(net, 0);
        if (net_still(net)) return 1;
    }
    return 0;
}

void net_hold(struct net *net, int index) { net->nodes[index].held = 1; }

// Step with an input that never pauses until nothing moves in front of a held model, then release it; see `net_rest`.
int net_fill(struct net *net, int index, num limit) {
    struct node *n = &net->nodes[index];
    for (num k = 0; k < limit; k++) {
        net_step(net, 1);
        if (!net_still(net)) continue;
        n->held = 0, wake(net->awake, index);
        for (int k = 0; k < n->outputs; k++)
            net->valids[n->out[k]] = n->valid[k], wake(net->awake, net->readers[n->out[k]]);
        return 1;
    }
    return 0;
}

// Step with an input that never pauses to the end of the next frame; return 1 then, 0 if it is stuck. See
// run_until_periodic; `first` is set with the first beat that is taken while it is negative.
int net_frame(struct net *net, num limit, num *first) {
    num quiet = 0, frames = net->ends[net->wires - 1].count;
    while (quiet <= limit && !(quiet && net_still(net))) {
        quiet++;
        if (net_step(net, 1) && *first < 0) *first = net->cycle - 1;
        if (net->ends[net->wires - 1].count > frames) return 1;
    }
    return 0;
}

num net_cycle(const struct net *net) { return net->cycle; }

num net_ends(const struct net *net, int wire, num *cycles) {
    if (cycles)
        for (num k = 0; k < net->ends[wire].count; k++)
            cycles[k] = net->ends[wire].items[net->ends[wire].first + k];
    return net->ends[wire].count;
}

void net_fifo(struct net *net, int index, num *high_water, num *was_full) {
    catch_up_all(net);
    *high_water = net->nodes[index].is.fifo.high_water, *was_full = net->nodes[index].is.fifo.was_full;
}

// Write all on which the network's behaviour depends, as numbers; return how many these are.
num net_state(struct net *net, num *out) {
    num size = 0;
    catch_up_all(net);
    for (int index = 0; index < net->count; index++) {
        const struct node *n = &net->nodes[index];
        const struct pipeline *p = &n->line;
        num words = sizeof n->is / sizeof(num);
        if (!out) {
            size += words + 3 + p->due.count + n->outputs;
            continue;
        }
        memcpy(out + size, &n->is, sizeof n->is);
        // These two only tell what has been.
        if (n->kind == FIFO) out[size + 4] = out[size + 5] = 0;
        size += words;
        out[size++] = p->beat, out[size++] = p->buffered, out[size++] = p->due.count;
        for (num k = 0; k < p->due.count; k++) out[size++] = p->due.items[(p->due.first + k) & (p->due.room - 1)] - p->move;
        for (int k = 0; k < n->outputs; k++) out[size++] = n->valid[k];
    }
    return size;
}
