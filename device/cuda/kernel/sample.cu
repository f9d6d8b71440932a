// Sampling: a token from a row of logits, by temperature, top_k, top_p and min_p and a random number that the host drew from seed and
// index. The choice is the host's own (model.Picker) for the same logits: the same exponential, sums in the same order, in f64.
//
// Shapes: logits [rows, stride] f32, how [rows], roots [64] f64 (2 to the j/64), to [rows] i32; -1 where more than MOST tokens would
// have to be put in order, and the host must choose.
// Grid: one block of 256 threads a row. Shared memory: 256 weights and candidates, MOST tokens in order. A thread owns tokens 256
// apart; sums are the first thread's, token by token.
// Oracle: model, Picker.choose.
#include "quire.cuh"

#define MOST 256
#define NO_WEIGHT -1.0

struct Sampling {
    double inverse; // 1 / temperature
    double topP, minP, u;
    i32 topK, greedy;
};

struct Draw {
    const float *logits;
    i32 vocab;
    double inverse, most; // the largest logit
    const double *roots;
};

// e to the x, as model.exp: 0 below -700 and for NaN.
FN double exp64(double x, const double *roots) {
    if (!(x >= -700)) return 0;
    if (x > 700) x = 700;
    double n = __builtin_floor(x * (64 * 1.44269504088896338700e+00) + 0.5);
    double r = x - n * (6.93147180369123816490e-01 / 64);
    r -= n * (1.90821492927057770002e-10 / 64);
    double p = 1.0 / 24 + r * (1.0 / 120);
    p = 1.0 / 6 + r * p;
    p = 0.5 + r * p;
    p = 1 + r * p;
    p = 1 + r * p;
    i64 k = i64(n);
    return roots[k & 63] * p * __builtin_bit_cast(double, u64((k >> 6) + 1023) << 52);
}

FN double weight(const Draw &d, i32 i) { return exp64((double(d.logits[i]) - d.most) * d.inverse, d.roots); }

struct Entry {
    float logit;
    i32 id;
};
// before orders by falling logit, then by id.
FN bool before(const Entry &a, const Entry &b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// next_best is the first entry behind last, in order; id -1 if there is none. NaN and -infinity do not count.
FN Entry next_best(const Draw &d, const Entry &last, Entry *found) {
    Entry mine = {0, -1};
    for (i32 i = thread(); i < d.vocab; i += 256) {
        Entry e = {d.logits[i], i};
        if (!(e.logit > -__builtin_inff()) || (last.id >= 0 && !before(last, e))) continue;
        if (mine.id < 0 || before(e, mine)) mine = e;
    }
    found[thread()] = mine;
    barrier();
    for (i32 half = 128; half > 0; half /= 2) {
        if (thread() < half) {
            Entry other = found[thread() + half];
            if (other.id >= 0 && (found[thread()].id < 0 || before(other, found[thread()]))) found[thread()] = other;
        }
        barrier();
    }
    Entry best = found[0];
    barrier();
    return best;
}

// Ordered is what one pass over all tokens, by id, gives: the sum of the weights that count, how many there are, and the token at
// which the sum first passes target.
struct Ordered {
    double sum;
    i32 count, at;
};

// in_order adds the weights of at least floor, zeros never count. It ends early at target, where that is not negative.
FN Ordered in_order(const Draw &d, double floor, double target, i32 top, double *weights, Ordered *shared) {
    Ordered o = {0, 0, top};
    bool done = false;
    for (i32 base = 0; base < d.vocab && !done; base += 256) {
        i32 i = base + thread();
        weights[thread()] = i < d.vocab ? weight(d, i) : NO_WEIGHT;
        barrier();
        if (thread() == 0) {
            for (i32 j = 0; j < 256 && !done; j++) {
                double w = weights[j];
                if (w < floor || w <= 0) continue;
                o.sum += w;
                o.count++;
                o.at = base + j;
                done = target >= 0 && target < o.sum;
            }
            *shared = o;
            shared->count = done ? -1 : o.count;
        }
        barrier();
        done = shared->count < 0;
        barrier();
    }
    o = *shared;
    barrier();
    return o;
}

KERNEL(sample, 256)(const float *logits, i32 stride, i32 vocab, const Sampling *how, const double *roots, i32 *to) {
    SHARED double weights[256];
    SHARED Entry found[256];
    SHARED double sortedWeights[MOST];
    SHARED i32 sorted[MOST];
    SHARED Ordered shared;
    const Sampling s = how[block()];
    Draw d = {logits + u64(block()) * u64(stride), vocab, s.inverse, 0, roots};
    Entry best = next_best(d, Entry{0, -1}, found);
    i32 top = best.id < 0 ? 0 : best.id, *out = to + block();
    d.most = double(d.logits[top]);
    if (s.greedy || !(d.most - d.most == 0)) { // NaN and infinities too
        if (thread() == 0) *out = top;
        return;
    }
    bool share = s.topP > 0 && s.topP < 1;
    if (s.topK <= 0 && !share) {
        double total = in_order(d, s.minP, -1, top, weights, &shared).sum;
        i32 at = in_order(d, s.minP, s.u * total, top, weights, &shared).at;
        if (thread() == 0) *out = at;
        return;
    }
    Ordered all = in_order(d, 0, -1, top, weights, &shared);
    i32 limit = s.topK > 0 ? min_(s.topK, all.count) : all.count, have = 0, taken = 0;
    double enough = __builtin_inf(), whole = all.sum, sum = 0;
    Entry last = {0, -1};
    bool first = share && limit < all.count; // a share of what top_k left
    if (first && limit > MOST) {
        if (thread() == 0) *out = -1;
        return;
    }
    for (i32 want = first ? limit : 1; taken < limit; want = taken + 1) {
        if (want > MOST) {
            if (thread() == 0) *out = -1;
            return;
        }
        for (; have < want; have++) {
            last = next_best(d, last, found);
            if (thread() == 0) sorted[have] = last.id, sortedWeights[have] = weight(d, last.id);
            barrier();
        }
        if (taken == 0 && share) {
            if (first) {
                whole = 0;
                for (i32 i = 0; i < limit; i++) whole += sortedWeights[i];
            }
            enough = s.topP * whole;
        }
        if (!(sum < enough)) break;
        double w = sortedWeights[taken];
        if (w < s.minP && taken > 0) break;
        sum += w;
        taken++;
    }
    double target = s.u * sum, acc = 0;
    i32 at = 0;
    for (; at < taken - 1; at++) {
        acc += sortedWeights[at];
        if (target < acc) break;
    }
    if (thread() == 0) *out = sorted[at];
}
REGISTER(sample)
