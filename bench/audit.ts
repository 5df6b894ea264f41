/** Measures what the audit log costs an exec in control: real database, real HTTP, a fake runner without delay. */
import { AuditLog } from '../packages/server/src/control/audit/audit-log.ts';
import { startHarness, type ControlHarness } from '../packages/server/src/control/testing/control-harness.ts';
import { interleave, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 400;
const TOGETHER = 32;
const ROUNDS_TOGETHER = 40;
const GOAL_MS = 0.5;

type Work = () => Promise<unknown>;

/** Runs the work with the log disabled: entries are accepted but not written. */
async function unaudited(work: Work): Promise<number> {
  const append: AuditLog['append'] = Reflect.get(AuditLog.prototype, 'append');
  AuditLog.prototype.append = async () => 1;
  try {
    return await timeMs(work);
  } finally {
    AuditLog.prototype.append = append;
  }
}

async function measure(name: string, work: Work, rounds: number): Promise<Figure> {
  const contenders = [
    { name, run: () => timeMs(work) },
    { name: `${name}, without a log`, run: () => unaudited(work) },
  ];
  const values = await interleave(contenders, rounds);
  const figure = compare({ name, against: 'the same without a log', goal: '', unit: 'ms', values });
  const aboveMs = figure.ours.median - figure.floor.median;
  return { ...figure, goal: `+ ≤ ${GOAL_MS} ms (measured + ${aboveMs.toFixed(2)} ms)` };
}

export async function benchAudit(harness: ControlHarness): Promise<Figure[]> {
  harness.runner.onExec = (command) => command.exit(0);
  const { id } = await harness.create();
  const exec = () => harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
  const execs = () => Promise.all(Array.from({ length: TOGETHER }, exec));
  return [
    await measure('exec', exec, ROUNDS),
    await measure(`${TOGETHER} execs at once`, execs, ROUNDS_TOGETHER),
  ];
}

if (import.meta.main) {
  await using harness = await startHarness();
  report('audit', 'no VM', await benchAudit(harness));
}
