/* An older processor: CPUID, which the system lets fault, is answered without the features of x86-64-v4. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define SET_CPUID 0x1012

static const uint32_t AVX512 = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31;
static const uint32_t VECTORS = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
static const uint32_t MATRICES = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;

static void answer(int number, siginfo_t *info, void *context) {
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) {
        signal(number, SIG_DFL);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], part = (uint32_t)registers[REG_RCX], a, b, c, d;
    syscall(SYS_arch_prctl, SET_CPUID, 1);
    __cpuid_count(leaf, part, a, b, c, d);
    syscall(SYS_arch_prctl, SET_CPUID, 0);
    if (leaf == 7 && part == 0) {
        b &= ~AVX512;
        c &= ~VECTORS;
        d &= ~MATRICES;
    } else if (leaf == 7 && part == 1) {
        a = b = c = d = 0;
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    syscall(SYS_arch_prctl, SET_CPUID, 0);
}
