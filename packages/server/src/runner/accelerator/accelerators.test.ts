import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { DeadlineError, untilAborted } from '../../lib/waiting/deadline.ts';
import { Accelerators, type AcceleratorMode } from './accelerators.ts';
import { BootEndedError } from './boot-once.ts';
import { UnfitCpuError, type KvmCpus } from './boot-with-kvm.ts';
import type { Known } from './kvm-record.ts';

/** `lasts`: the boot runs until it is aborted. */
type Boot = 'works' | 'hangs' | 'ends' | 'lasts' | 'unfit';

const CPU = { vendor: 'GenuineIntel', avx: true } as const;
const CPUS: KvmCpus = { host: { ...CPU, avx2: true }, chosen: CPU };

/** A host whose boots with KVM have the outcomes in `boots`, in order; the last outcome repeats. */
class Host {
  readonly boots: Boot[];
  obstacle: string | undefined;
  known: Known | undefined;
  readonly patienceMs: number[] = [];
  readonly pausesMs: number[] = [];
  readonly changes: string[] = [];
  #wake = Promise.withResolvers<void>();
  /** Settles at the next pause, `lasts` boot or change of accelerator. */
  #event = Promise.withResolvers<void>();

  constructor(...boots: Boot[]) {
    this.boots = boots;
  }

  open(mode: AcceleratorMode = 'auto'): Promise<Accelerators> {
    return Accelerators.open({
      mode,
      probe: {
        findObstacle: () => this.obstacle,
        boot: (timeoutMs, signal) => this.#boot(timeoutMs, signal),
      },
      record: { find: () => this.known, write: (known) => void (this.known = known) },
      log: pino({ level: 'silent' }),
      pause: (milliseconds, signal) => {
        this.pausesMs.push(milliseconds);
        this.#wake = Promise.withResolvers();
        this.#event.resolve();
        return untilAborted(signal, this.#wake.promise);
      },
    });
  }

  async #boot(timeoutMs: number, signal: AbortSignal | undefined): Promise<KvmCpus> {
    this.patienceMs.push(timeoutMs);
    const boot = this.boots.length > 1 ? this.boots.shift() : this.boots[0];
    if (boot === 'hangs') throw new DeadlineError('booting a kernel with KVM', timeoutMs);
    if (boot === 'ends') throw new BootEndedError('vmm_lost');
    if (boot === 'unfit') throw new UnfitCpuError('x86-64-v4', ['avx512f']);
    if (boot !== 'lasts') return CPUS;
    this.#event.resolve();
    return untilAborted(signal, Promise.withResolvers<never>().promise);
  }

  watch(accelerators: Accelerators): Promise<void> {
    accelerators.watch(({ accelerator }) => {
      this.changes.push(accelerator);
      this.#event.resolve();
    });
    return this.#event.promise;
  }

  /** Ends the pause and waits for the next event. */
  async attempt(): Promise<void> {
    this.#event = Promise.withResolvers();
    this.#wake.resolve();
    await this.#event.promise;
  }
}

test('working KVM is used and not probed again until the host reboots', async () => {
  const host = new Host('works');
  for (const boots of [1, 1]) {
    await using accelerators = await host.open();
    const { accelerator, cpus } = accelerators.current;
    assert.deepEqual([accelerator, cpus, host.patienceMs.length], ['kvm', CPUS, boots]);
  }
});

test('KVM recorded as working is not used when its device is missing', async () => {
  const host = new Host('works');
  host.known = { kvm: 'works', cpus: CPUS };
  host.obstacle = 'there is no /dev/kvm on this host';
  await using accelerators = await host.open();
  assert.deepEqual(accelerators.current, { accelerator: 'tcg', reason: host.obstacle });
});

test('a refusal is not recorded: each start probes again', async () => {
  const host = new Host('ends', 'ends', 'works');
  for (const accelerator of ['tcg', 'tcg', 'kvm']) {
    await using accelerators = await host.open();
    assert.equal(accelerators.current.accelerator, accelerator);
  }
});

test('the next start finds a kernel module that was loaded later', async () => {
  const host = new Host('works');
  host.obstacle = 'there is no /dev/kvm on this host';
  assert.equal((await host.open()).current.accelerator, 'tcg');
  host.obstacle = undefined;
  assert.equal((await host.open()).current.accelerator, 'kvm');
});

test('an unanswered boot delays one start only and is retried while the service runs', async () => {
  const host = new Host('hangs', 'hangs', 'works');
  await using first = await host.open();
  assert.equal(first.current.accelerator, 'tcg');
  assert.match(first.current.reason, /took longer than 10000 ms; it is tried again in the background$/u);
  await using second = await host.open();
  assert.deepEqual([second.current.accelerator, host.patienceMs.length], ['tcg', 1]);
  assert.match(second.current.reason, /^KVM has not answered since the host booted/u);
  await host.watch(second);
  await host.attempt();
  assert.deepEqual([second.current.accelerator, host.changes], ['tcg', []]);
  await host.attempt();
  assert.deepEqual([second.current.accelerator, host.changes, host.known?.kvm], ['kvm', ['kvm'], 'works']);
});

test('the pauses between boots grow to an hour; an absent device is checked every minute', async () => {
  const host = new Host('hangs');
  await using accelerators = await host.open();
  await host.watch(accelerators);
  for (let number = 0; number < 8; number += 1) await host.attempt();
  host.obstacle = 'there is no /dev/kvm on this host';
  await host.attempt();
  host.obstacle = undefined;
  await host.attempt();
  const seconds = host.pausesMs.map((pauseMs) => pauseMs / 1000);
  assert.deepEqual(seconds, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 60, 60]);
});

test('stopping the runner aborts a running attempt', async () => {
  const host = new Host('hangs', 'lasts');
  const accelerators = await host.open();
  await host.watch(accelerators);
  await host.attempt();
  assert.equal(host.patienceMs.length, 2);
  await accelerators[Symbol.asyncDispose]();
  assert.deepEqual([host.changes, accelerators.current.accelerator], [[], 'tcg']);
});

test('in mode kvm the start fails with the reason, after a longer wait', async () => {
  const host = new Host('hangs');
  host.known = { kvm: 'unanswered' };
  const isRefusal = (reason: RegExp) => (error: unknown) =>
    error instanceof AppError &&
    error.code === 'invalid_request' &&
    error.message.startsWith('acceleratorMode: is kvm, but KVM cannot be used: ') &&
    reason.test(error.message);
  await assert.rejects(host.open('kvm'), isRefusal(/took longer than 60000 ms$/u));
  host.obstacle = 'there is no /dev/kvm on this host';
  await assert.rejects(host.open('kvm'), isRefusal(/there is no \/dev\/kvm on this host$/u));
  const working = await new Host('works').open('kvm');
  assert.equal(working.current.accelerator, 'kvm');
});

test('an unsupported CPU level fails the start, and keeps a running service on emulation', async () => {
  for (const mode of ['auto', 'kvm'] as const)
    await assert.rejects(
      new Host('unfit').open(mode),
      (error) =>
        error instanceof AppError &&
        error.message ===
          'cpuModel: is x86-64-v4, but guests of this host cannot have avx512f; set cpuModel to a lower level, or to host',
    );
  const host = new Host('hangs', 'unfit', 'works');
  await using accelerators = await host.open();
  await host.watch(accelerators);
  await host.attempt();
  assert.equal(
    accelerators.current.reason,
    'COPPICE_CPU is x86-64-v4, but guests of this host cannot have avx512f',
  );
  assert.deepEqual(host.changes, []);
});

test('a saved CPU is compared with all features of the host, not with the CPU of new VMs', async () => {
  await using kvm = await new Host('works').open();
  assert.deepEqual(kvm.findMissing({ ...CPU, avx2: true }), []);
  assert.deepEqual(kvm.findMissing({ ...CPU, avx512f: true }), ['avx512f']);
});

test('in mode tcg KVM is never tried', async () => {
  const host = new Host('works');
  await using accelerators = await host.open('tcg');
  accelerators.watch(() => assert.fail('nothing changes'));
  assert.deepEqual(accelerators.current, { accelerator: 'tcg', reason: 'COPPICE_ACCELERATOR=tcg' });
  assert.deepEqual([host.patienceMs, host.pausesMs], [[], []]);
});

test('emulated saved state is accepted on a KVM host except in mode kvm; KVM saved state needs KVM', async () => {
  await using kvm = await new Host('works').open();
  assert.deepEqual([kvm.findRefusal('kvm'), kvm.findRefusal('tcg')], [undefined, undefined]);
  await using strict = await new Host('works').open('kvm');
  assert.match(strict.findRefusal('tcg') ?? '', /COPPICE_ACCELERATOR=kvm/u);
  await using emulating = await new Host('ends').open();
  assert.equal(emulating.findRefusal('tcg'), undefined);
  assert.match(
    emulating.findRefusal('kvm') ?? '',
    /^this machine uses tcg: \/dev\/kvm is there, but no kernel boots/u,
  );
});
