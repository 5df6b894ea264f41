/**
 * Measures how many lists and single records control answers per second, with no history and with a history of 100,000
 * sandboxes, against a request to the same server that only looks up the key. Needs no VM.
 */
import { Agent, request } from 'node:http';
import {
  API_KEY,
  startHarness,
  type ControlHarness,
} from '../packages/server/src/control/testing/control-harness.ts';
import { insertEnded } from '../packages/server/src/control/testing/many-ended.ts';
import { interleave, summarize, type Contender } from './fixtures/measure.ts';
import { report, type Figure } from './fixtures/report.ts';

const HISTORY = 100_000;
const LIVE = 20;
const CLIENTS = 8;
const WINDOW_MS = 1_000;
const ROUNDS = 10;

/** Clients that keep their connections open, as real programs do. */
class Clients implements Disposable {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  readonly #harness: ControlHarness;

  constructor(harness: ControlHarness) {
    this.#harness = harness;
  }

  /** Returns answers per second while each client sends its next request right after the last answer. */
  async rate(path: string, status: number): Promise<number> {
    const startedAt = performance.now();
    let answers = 0;
    const ask = async (): Promise<void> => {
      for (; performance.now() - startedAt < WINDOW_MS; answers += 1) await this.#ask(path, status);
    };
    await Promise.all(Array.from({ length: CLIENTS }, ask));
    return (answers * 1000) / (performance.now() - startedAt);
  }

  #ask(path: string, status: number): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const headers = { authorization: `Bearer ${API_KEY}` };
    const asked = request(`${this.#harness.control?.address}${path}`, { agent: this.#agent, headers });
    asked.on('error', reject);
    asked.on('response', (response) => {
      if (response.statusCode !== status) reject(new Error(`${path}: ${response.statusCode}`));
      response.on('end', resolve).on('error', reject).resume();
    });
    asked.end();
    return promise;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

async function measure(harness: ControlHarness, rows: string): Promise<Figure[]> {
  using clients = new Clients(harness);
  const { body } = await harness.call('GET', '/v1/runs');
  const contender = (name: string, path: string, status = 200): Contender => ({
    name: `${name}, ${rows}`,
    run: () => clients.rate(path, status),
  });
  const values = await interleave(
    [
      contender('nothing but the key', '/v1/nothing', 404),
      contender(`GET /v1/runs, ${LIVE} that run`, '/v1/runs'),
      contender('GET /v1/runs/{id}', `/v1/runs/${body[0].id}`),
    ],
    ROUNDS,
  );
  const [floor, ...ours] = [...values].map(([name, list]) => summarize(name, '/s', list));
  return ours.map((sample) => ({
    name: `requests a second, ${sample.name}`,
    against: 'a request for nothing but the key',
    ratio: sample.median / (floor?.median ?? NaN),
    goal: '≥ 0.5',
    samples: floor === undefined ? [sample] : [sample, floor],
  }));
}

export async function benchApi(): Promise<Figure[]> {
  await using harness = await startHarness({ requestsPerSecond: 0 });
  for (let count = 0; count < LIVE; count += 1) await harness.create({ timeout: 0 });
  const before = await measure(harness, 'no history');
  {
    await using db = harness.openDatabase();
    await insertEnded(db, HISTORY);
  }
  return [...before, ...(await measure(harness, `${HISTORY} ended`))];
}

if (import.meta.main) report('api', 'no virtual machine', await benchApi());
