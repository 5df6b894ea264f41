/** The timer rate that a sandbox's kernel measures when its template boots, and gets wrong on a busy host. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { describe, it } from 'node:test';
import { shared } from '../fixtures/service/shared.ts';

const BUSY_PROCESSES = 2;
/** Timer counts per nanosecond in the kernel's form, shifted left by 32 bits, for a timer that counts every 16 ns. */
const TRUE_MULT = 2 ** 32 / 16;
const MULTS = `awk '/Per CPU device/ { cpu = 1 } cpu && /mult/ { print $2 }' /proc/timer_list`;

describe('timers of sandboxes whose template booted on a busy host', () => {
  for (const vcpus of [1, 2])
    it(`count as fast as the kernel assumes, with ${vcpus} processors`, async () => {
      const { api } = await shared();
      const load = Array.from({ length: BUSY_PROCESSES }, () =>
        spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore', timeout: 300_000 }),
      );
      try {
        // No other test uses this shape, so the template is booted here.
        const { id } = await api.create({ image: 'coppice/base:1', mem_mib: 311, vcpus, timeout: 0 });
        const { stdout } = await api.exec(id, MULTS);
        await api.destroy(id);
        const mults = stdout.trim().split('\n').map(Number);
        assert.equal(mults.length, vcpus);
        for (const mult of mults) {
          const late = mult / TRUE_MULT - 1;
          assert.ok(late < 0.006 && late > -0.11, `every wait is longer by ${(100 * late).toFixed(2)} %`);
        }
      } finally {
        for (const each of load) each.kill('SIGKILL');
      }
    });
});
