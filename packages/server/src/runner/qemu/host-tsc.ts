/**
 * Measures the rate of this host's time stamp counter. An emulated guest reads the same counter, and its kernel would
 * find the rate by polling an emulated timer. On a busy host that fails, and the boot then waits for ticks that never
 * come. So the runner measures the rate and passes it to the kernel (`tsc_early_khz`).
 */
import koffi from 'koffi';
import { setTimeout as delay } from 'node:timers/promises';

/** `rdtsc; shl rdx, 32; or rax, rdx; ret` */
const READ_TSC = Buffer.from([0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3]);
const PROT_READ_WRITE = 0x3;
const PROT_READ_EXECUTE = 0x5;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const PAGE_BYTES = 4096;
/** Time between two readings: an error of a microsecond in each is then some parts in a million. */
const INTERVAL_MS = 100;
const ATTEMPTS = 20;

interface Reading {
  tsc: bigint;
  timeNs: bigint;
  /** Duration of the reading: the shortest of several was not interrupted. */
  spanNs: bigint;
}

type ReadTsc = () => bigint;

function makeReader(): ReadTsc {
  const libc = koffi.load('libc.so.6');
  const mmap = libc.func(
    'void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)',
  );
  const mprotect = libc.func('int mprotect(void *address, size_t length, int protection)');
  const page: unknown = mmap(null, PAGE_BYTES, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  koffi.encode(page, koffi.array('uint8_t', READ_TSC.length), [...READ_TSC]);
  if (mprotect(page, PAGE_BYTES, PROT_READ_EXECUTE) !== 0)
    throw new Error('the page that reads the TSC cannot be made executable');
  const prototype = koffi.proto('uint64_t (void)');
  return () => BigInt(koffi.call(page, prototype) as number | bigint);
}

function read(readTsc: ReadTsc): Reading {
  let best: Reading | undefined;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const before = process.hrtime.bigint();
    const tsc = readTsc();
    const after = process.hrtime.bigint();
    const reading = { tsc, timeNs: (before + after) / 2n, spanNs: after - before };
    if (best === undefined || reading.spanNs < best.spanNs) best = reading;
  }
  if (best === undefined) throw new Error('the TSC was not read');
  return best;
}

/** Returns the rate in kHz. */
export async function measureTscKhz(): Promise<number> {
  const readTsc = makeReader();
  const first = read(readTsc);
  await delay(INTERVAL_MS);
  const second = read(readTsc);
  return Number(((second.tsc - first.tsc) * 1_000_000n) / (second.timeNs - first.timeNs));
}
