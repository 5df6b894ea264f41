/**
 * Measures sandboxes that are saved and continue: snapshot and hibernation against a write and fsync of as many bytes;
 * resume, restore and rollback, each with a first exec, against a bare restore. The saved data was written a moment
 * before, so it is read from the page cache, like that of the floor. `--quick` only tests the benchmark itself.
 */
import { CloneApi } from '../e2e/fixtures/clones/clone-api.ts';
import type { BenchService } from './fixtures/bench-service.ts';
import type { FloorInputs } from './fixtures/floor-vm.ts';
import { FloorDisk, floorOf, restoreFloor } from './fixtures/fork-floor.ts';
import { watchCapture } from './fixtures/fork-log.ts';
import { ForkParent } from './fixtures/fork-parent.ts';
import { PLAN } from './fixtures/fork-plan.ts';
import { startForkService } from './fixtures/fork-service.ts';
import { summarize, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const MEM_MIB = 1024;
const MIB = 1024 ** 2;

const OPERATIONS = ['snapshot', 'hibernate', 'resume', 'restore', 'rollback'] as const;
type Operation = (typeof OPERATIONS)[number];

/** Milliseconds of each operation and of its floor. */
interface Round extends Record<Operation, number> {
  snapshotFloor: number;
  hibernateFloor: number;
  restoreFloor: number;
  /** The same write to blocks that the underlying disk may not have allocated yet, so that it has to allocate them. */
  freshWrite: number;
  savedMiB: number;
}

interface Stage {
  bench: BenchService;
  sandbox: ForkParent;
  disk: FloorDisk;
  template: FloorInputs;
}

async function runRound(stage: Stage): Promise<Round> {
  const { bench, sandbox, disk, template } = stage;
  const { id } = sandbox;
  const clones = new CloneApi(bench.api);
  const untilExec = (goOn: () => Promise<string>): Promise<number> =>
    timeMs(async () => bench.api.exec(await goOn(), 'true'));
  let snapshotId = '';
  const snapshot = await timeSaving(stage, async () => (snapshotId = await clones.snapshot(id)));
  const created: string[] = [];
  const restore = await untilExec(async () => {
    const record = await clones.restore(snapshotId);
    created.push(record.id);
    return record.id;
  });
  await sandbox.endAll(created);
  const rollback = await untilExec(async () => {
    await clones.rollback(id, snapshotId);
    return id;
  });
  await clones.deleteSnapshot(snapshotId);
  const hibernate = await timeSaving(stage, () => clones.hibernate(id));
  const resume = await untilExec(async () => {
    await clones.resume(id);
    return id;
  });
  // This must come first: the later writes reuse the blocks that it frees.
  const freshWrite = disk.write(snapshot.sizeBytes, { sync: true });
  return {
    freshWrite,
    snapshot: snapshot.elapsedMs,
    hibernate: hibernate.elapsedMs,
    resume,
    restore,
    rollback,
    snapshotFloor: disk.write(snapshot.sizeBytes, { sync: true }),
    hibernateFloor: disk.write(hibernate.sizeBytes, { sync: true }),
    restoreFloor: await restoreFloor(template),
    savedMiB: hibernate.sizeBytes / MIB,
  };
}

async function timeSaving(
  { bench, sandbox, disk }: Stage,
  run: () => Promise<unknown>,
): Promise<{ elapsedMs: number; sizeBytes: number }> {
  disk.settle();
  const saved = await watchCapture(bench, sandbox.id, () => timeMs(run));
  return { elapsedMs: saved.result, sizeBytes: saved.captured.size_bytes ?? NaN };
}

const WRITE = 'write(2) of as many bytes and fsync';
const RESTORE = 'bare QEMU restore of the template';

/** The floor of each operation: its name, and its field in a round. */
const FLOORS = {
  snapshot: { against: WRITE, floor: 'snapshotFloor', goal: '–' },
  hibernate: { against: WRITE, floor: 'hibernateFloor', goal: '≤ 1.3' },
  resume: { against: RESTORE, floor: 'restoreFloor', goal: '≤ 1.3' },
  restore: { against: RESTORE, floor: 'restoreFloor', goal: '–' },
  rollback: { against: RESTORE, floor: 'restoreFloor', goal: '–' },
} as const satisfies Record<Operation, { against: string; floor: keyof Round; goal: string }>;

const NAMES: Readonly<Record<Operation, string>> = {
  snapshot: 'snapshot',
  hibernate: 'hibernate',
  resume: 'resume, to the first exec',
  restore: 'restore, to the first exec',
  rollback: 'rollback, to the first exec',
};

export async function benchHibernate(bench: BenchService): Promise<Figure[]> {
  using disk = new FloorDisk(bench);
  const sandbox = await ForkParent.create(bench, MEM_MIB, PLAN.savedMiB);
  const stage = { bench, sandbox, disk, template: floorOf(bench, sandbox) };
  await runRound(stage);
  const rounds: Round[] = [];
  while (rounds.length < PLAN.rounds) rounds.push(await runRound(stage));
  await sandbox.end();
  const saved = summarize(
    'saved',
    'MiB',
    rounds.map((round) => round.savedMiB),
  );
  const figures: Figure[] = OPERATIONS.map((operation) => {
    const { against, floor, goal } = FLOORS[operation];
    const name = NAMES[operation];
    const values = new Map([
      [name, rounds.map((round) => round[operation])],
      [`${against} (${operation})`, rounds.map((round) => round[floor])],
    ]);
    return compare({ name, against, goal, unit: 'ms', values });
  });
  const [first] = figures;
  const size = `${MEM_MIB} MiB of RAM, ${PLAN.savedMiB} of them written; ${saved.median.toFixed(0)} MiB are saved`;
  if (first !== undefined) {
    first.note = size;
    const fresh = rounds.map((round) => round.freshWrite);
    first.samples.push(summarize('the same to fresh blocks of the disk', 'ms', fresh));
  }
  return figures;
}

if (import.meta.main) {
  await using bench = await startForkService();
  report(`hibernate${PLAN.suffix}`, bench.accelerator, await benchHibernate(bench));
}
