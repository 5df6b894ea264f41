/**
 * Measures requests that a control forwards to the one that owns the runner, against the same requests sent to that one: small
 * answers, commands, and the bytes of a file.
 */
import { Cluster, type Machine } from '../../e2e/fixtures/machines/cluster.ts';
import { chooseAccelerator } from '../../e2e/fixtures/service/accelerator.ts';
import { API_KEY } from '../../e2e/fixtures/service/service.ts';
import { interleave, timeMs } from '../fixtures/measure.ts';
import { compare, report, type Figure } from '../fixtures/report.ts';

const ROUNDS = 60;
const FILE_ROUNDS = 10;
const FILE_BYTES = 16 << 20;
const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };

async function call(
  { address }: Machine,
  method: string,
  path: string,
  body?: string | Uint8Array<ArrayBuffer>,
): Promise<Response> {
  const headers: Record<string, string> = { authorization: `Bearer ${API_KEY}` };
  if (typeof body === 'string') headers['content-type'] = 'application/json';
  const answer = await fetch(`${address}${path}`, {
    method,
    headers,
    ...(body === undefined ? {} : { body }),
  });
  if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${await answer.text()}`);
  return answer;
}

/** Compares the same work at both controls. */
async function compareControls(
  { controls: [owner, other] }: Cluster,
  { name, goal, rounds }: { name: string; goal: string; rounds: number },
  work: (control: Machine) => Promise<unknown>,
): Promise<Figure> {
  const values = await interleave(
    [
      { name: 'forwarded', run: () => timeMs(() => work(other)) },
      { name: 'sent to the owner', run: () => timeMs(() => work(owner)) },
    ],
    rounds,
  );
  return compare({ name, against: 'the same, sent to the owner', goal, unit: 'ms', values });
}

export async function benchForwarding(): Promise<Figure[]> {
  await using cluster = await Cluster.start();
  // No runner moves while requests are measured.
  await cluster.untilBalanced();
  const [owner] = cluster.controls;
  const made = await call(owner, 'POST', '/v1/runs', JSON.stringify(IMAGE));
  const { id } = (await made.json()) as { id: string };
  const drain = async (answer: Promise<Response>): Promise<void> => void (await (await answer).arrayBuffer());
  const content = new Uint8Array(FILE_BYTES);
  return [
    await compareControls(
      cluster,
      { name: 'forwarded list of files', goal: '–', rounds: ROUNDS },
      (control) => drain(call(control, 'GET', `/v1/runs/${id}/files?path=/etc`)),
    ),
    await compareControls(cluster, { name: 'forwarded command', goal: '–', rounds: ROUNDS }, (control) =>
      drain(call(control, 'POST', `/v1/runs/${id}/exec`, JSON.stringify({ command: 'true' }))),
    ),
    await compareControls(
      cluster,
      { name: 'forwarded upload of 16 MiB', goal: '–', rounds: FILE_ROUNDS },
      (control) => drain(call(control, 'POST', `/v1/runs/${id}/files/upload?path=/root/big`, content)),
    ),
  ];
}

if (import.meta.main) report('forwarding', await chooseAccelerator(), await benchForwarding());
