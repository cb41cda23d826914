// Products of a warpgroup (wgmma), a from shared memory or from registers. Part of the scheduler's library: see emulate.py.
//
// A product runs as late as it may: when its group is waited for. What fills its operands' memory too early, or reads
// its sums too early, is seen in the result.
//
// Sums of floats lose what they lose on the device: an instruction's products and what they are added to are cut off
// below the same digit, counted from the largest of them, and their sum is cut to a float.

#include "tensor_unit.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

namespace {

constexpr int WARPGROUP = 128, ROWS = 64, DEPTH_BYTES = 32;

// ---- elements

float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
float small_float(uint32_t bits, int exponents, int digits, bool has_infinity) {
    const uint32_t sign = bits >> (exponents + digits) & 1, e = bits >> digits & ((1u << exponents) - 1);
    const uint32_t m = bits & ((1u << digits) - 1), top = (1u << exponents) - 1;
    float x;
    if (e == top && has_infinity) x = m ? NAN : INFINITY;
    else if (e == top && m == (1u << digits) - 1 && !has_infinity) x = NAN;
    else if (e == 0) x = ldexpf((float)m, 1 - (1 << (exponents - 1)) + 1 - digits);
    else x = ldexpf((float)(m + (1u << digits)), (int)e - ((1 << (exponents - 1)) - 1) - digits);
    return sign ? -x : x;
}

enum Kind { F16, BF16, TF32, E4M3, E5M2, S8, U8 };

Kind kind_of(const char* name) {
    static const char* const names[] = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"};
    for (int kind = 0; kind < 7; ++kind)
        if (strcmp(name, names[kind]) == 0) return (Kind)kind;
    emulated_stop("wgmma of an unknown type", 0);
    return F16;
}
int element_bytes(Kind kind) { return kind == TF32 ? 4 : kind <= BF16 ? 2 : 1; }

const std::vector<float>& halves() {
    static std::vector<float> all;
    for (uint32_t bits = (uint32_t)all.size(); bits < 65536; ++bits) all.push_back(small_float(bits, 5, 10, true));
    return all;
}

float value_of(Kind kind, uint32_t word) {
    switch (kind) {
        case F16: return halves()[word];
        case BF16: return of_bits(word << 16);
        case TF32: return of_bits(word & ~0x1fffu);
        case E4M3: return small_float(word, 4, 3, false);
        case E5M2: return small_float(word, 5, 2, true);
        case S8: return (float)(int8_t)word;
        default: return (float)word;
    }
}

// Binary digits behind the first one of the largest term.
int kept_digits(Kind kind) { return kind >= E4M3 ? 13 : 25; }

double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
int exponent_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7ff) - 1023;
}
float cut_to_float(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~0x1fffffffull;
    memcpy(&x, &bits, sizeof x);
    return (float)x;
}

// sum[n] + a[0] b[0][n] + ..., for all columns at once.
void add_products(float* sum, const float* a, const float* b, int depth, int columns, int digits) {
    static double largest[256], scale[256], total[256];
    bool is_finite = true;
    for (int n = 0; n < columns; ++n) largest[n] = fabs((double)sum[n]);
    for (int k = 0; k < depth; ++k)
        for (int n = 0; n < columns; ++n) {
            const double term = fabs((double)a[k] * b[k * columns + n]);
            largest[n] = term > largest[n] ? term : largest[n];
            is_finite &= term < INFINITY;
        }
    for (int n = 0; n < columns; ++n) is_finite &= largest[n] < INFINITY;
    if (!is_finite) {
        for (int k = 0; k < depth; ++k)
            for (int n = 0; n < columns; ++n) sum[n] += a[k] * b[k * columns + n];
        return;
    }
    for (int n = 0; n < columns; ++n) {
        scale[n] = largest[n] > 0 ? power_of_two(digits - exponent_of(largest[n])) : 0;
        total[n] = (int)(sum[n] * scale[n]);
    }
    for (int k = 0; k < depth; ++k)
        for (int n = 0; n < columns; ++n) total[n] += (int)((double)a[k] * b[k * columns + n] * scale[n]);
    for (int n = 0; n < columns; ++n) sum[n] = largest[n] > 0 ? cut_to_float(total[n] / scale[n]) : 0.0f;
}

// ---- what is to be multiplied

struct Product {
    void* sum[WARPGROUP];
    unsigned long long a, b;
    int columns;
    Kind kind_a, kind_b;
    int across_a, across_b;
    const unsigned* registers[WARPGROUP];  // of a, where it is not in shared memory
    int is_in_registers, add;
};

struct Queue {
    std::vector<std::vector<Product>> groups;  // committed
    std::vector<Product> open;
};
struct Warpgroup {
    uint3 block;
    int number;
    bool operator<(const Warpgroup& other) const {
        return std::tie(block.x, block.y, block.z, number) <
               std::tie(other.block.x, other.block.y, other.block.z, other.number);
    }
};
std::map<Warpgroup, Queue> queues;

Queue& my_queue() { return queues[{emulated_blockIdx, current / WARPGROUP}]; }

// ---- operands

// Byte of an operand: `line` counts rows of a or columns of b, `k` steps of the sum.
unsigned char* element_at(unsigned long long matrix, int line, int k, int size, bool across) {
    const unsigned start = (matrix & 0x3fff) << 4, panel = (matrix >> 16 & 0x3fff) << 4, eights = (matrix >> 32 & 0x3fff) << 4;
    const unsigned exchanged = (16 >> (matrix >> 62)) - 1;  // parts of a row less one: 8, 4, 2
    unsigned at;
    const unsigned row = 16 * (exchanged + 1), held = row / size;  // bytes of a row, elements that lie in it
    if (across) at = start + line / held * panel + line % held * size + k / 8 * eights + k % 8 * row;
    else at = start + line / 8 * eights + line % 8 * row + k * size;
    at ^= (at >> 7 & exchanged) << 4;
    return shared_bytes(at, size, "wgmma reads outside of the launch's shared memory");
}

void load_operand(float* to, unsigned long long matrix, int lines, Kind kind, bool across) {
    if (matrix >> 62 == 0 || matrix >> 49 & 7) emulated_stop("a descriptor without a swizzle", 0);
    const int size = element_bytes(kind), depth = DEPTH_BYTES / size;
    if (across && size != 2) emulated_stop("only 16-bit operands may lie across k", 0);
    for (int line = 0; line < lines; ++line)
        for (int k = 0; k < depth; ++k) {
            uint32_t word = 0;
            memcpy(&word, element_at(matrix, line, k, size, across), size);
            to[line * depth + k] = value_of(kind, word);
        }
}

// Word r of a thread: rows lane / 4 and that plus 8 in turn, four bytes of k each; the second half of k in the last two.
void load_registers(float* to, const Product& p) {
    const int size = element_bytes(p.kind_a), depth = DEPTH_BYTES / size;
    for (int thread = 0; thread < WARPGROUP; ++thread)
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < 4 / size; ++i) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r % 2), k = (r / 2 * 16 + thread % 4 * 4) / size + i;
                const uint32_t word = p.registers[thread][r] >> 8 * size * i & (size == 4 ? ~0u : (1u << 8 * size) - 1);
                to[row * depth + k] = value_of(p.kind_a, word);
            }
}

void multiply(const Product& p) {
    static float a[ROWS * DEPTH_BYTES], b[256 * DEPTH_BYTES], turned[DEPTH_BYTES * 256];
    const int depth = DEPTH_BYTES / element_bytes(p.kind_a), columns = p.columns;
    const bool is_integer = p.kind_a == S8 || p.kind_a == U8;
    if (p.is_in_registers) load_registers(a, p);
    else load_operand(a, p.a, ROWS, p.kind_a, p.across_a);
    load_operand(b, p.b, columns, p.kind_b, p.across_b);
    for (int k = 0; k < depth; ++k)
        for (int n = 0; n < columns; ++n) turned[k * columns + n] = b[n * depth + k];
    for (int row = 0; row < ROWS; ++row) {
        float sums[256] = {};  // of 32 products of bytes: exact
        const int first = row / 16 * 32 + row % 8 * 4, half = row / 8 % 2;  // the row's four threads
        const auto place = [&](int n) { return n / 8 * 4 + half * 2 + n % 2; };
        if (!p.add)
            for (int n = 0; n < columns; ++n) static_cast<uint32_t*>(p.sum[first + n % 8 / 2])[place(n)] = 0;
        if (!is_integer)
            for (int n = 0; n < columns; ++n) sums[n] = static_cast<float*>(p.sum[first + n % 8 / 2])[place(n)];
        if (is_integer) {
            for (int k = 0; k < depth; ++k)
                for (int n = 0; n < columns; ++n) sums[n] += a[row * depth + k] * turned[k * columns + n];
        } else {
            add_products(sums, a + row * depth, turned, depth, columns, kept_digits(p.kind_a));
        }
        for (int n = 0; n < columns; ++n) {
            void* const held = p.sum[first + n % 8 / 2];
            if (is_integer) static_cast<uint32_t*>(held)[place(n)] += (uint32_t)(int32_t)sums[n];
            else static_cast<float*>(held)[place(n)] = sums[n];
        }
    }
}

// ---- what a warpgroup does together

struct Share {
    Product product;  // sum[0] is the thread's own
    int left;
};

void add_product(void** places, unsigned) {
    Product whole = static_cast<Share*>(places[0])->product;
    for (int i = 0; i < WARPGROUP; ++i) {
        if (!places[i]) emulated_stop("a thread of the warpgroup has exited before wgmma", 0);
        const Product& own = static_cast<Share*>(places[i])->product;
        if (own.a != whole.a || own.b != whole.b) emulated_stop("threads of a warpgroup give wgmma other descriptors", 0);
        whole.sum[i] = own.sum[0];
        whole.registers[i] = own.registers[0];
    }
    my_queue().open.push_back(whole);
}

void commit(void**, unsigned) {
    Queue& queue = my_queue();
    queue.groups.push_back({});
    queue.groups.back().swap(queue.open);
}

void finish(void** places, unsigned) {
    Queue& queue = my_queue();
    const size_t left = static_cast<Share*>(places[0])->left;
    while (queue.groups.size() > left) {
        for (const Product& product : queue.groups.front()) multiply(product);
        queue.groups.erase(queue.groups.begin());
    }
}

void forget_products() { queues.clear(); }

void end_products() {
    for (const auto& [of, queue] : queues)
        if (is_same(of.block, emulated_blockIdx) && !(queue.groups.empty() && queue.open.empty()))
            emulated_stop("products that nobody waited for when their block ends", 0);
}

}  // namespace

extern "C" {

void emulated_warpgroup_product(
    void* sum, unsigned long long a, unsigned long long b, int columns, const char* kind_a, const char* kind_b, int across_a,
    int across_b, int add
) {
    Share mine{{{sum}, a, b, columns, kind_of(kind_a), kind_of(kind_b), across_a, across_b, {}, 0, add}, 0};
    emulated_meet(WARPGROUP, ~0u, &mine, add_product, "wgmma", 0);
}

void emulated_warpgroup_product_of_registers(
    void* sum, const unsigned* a, unsigned long long b, int columns, const char* kind_a, const char* kind_b, int across_b, int add
) {
    Share mine{{{sum}, 0, b, columns, kind_of(kind_a), kind_of(kind_b), 0, across_b, {a}, 1, add}, 0};
    emulated_meet(WARPGROUP, ~0u, &mine, add_product, "wgmma", 0);
}

void emulated_warpgroup_commit(void) {
    Share mine{};
    emulated_meet(WARPGROUP, ~0u, &mine, commit, "wgmma.commit_group", 0);
}

void emulated_warpgroup_wait(int left) {
    Share mine{};
    mine.left = left;
    emulated_meet(WARPGROUP, ~0u, &mine, finish, "wgmma.wait_group", 0);
}
}
