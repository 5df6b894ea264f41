/**
 * Measures what traces cost: creates, and requests that only read a record, of a service that exports every trace
 * against one that exports none. The collector takes the spans without a look, in this process.
 */
import { Agent } from 'node:http';
import { Api } from '../e2e/fixtures/api/api.ts';
import { API_KEY, Service } from '../e2e/fixtures/service/service.ts';
import { OtlpReceiver } from '../packages/server/src/lib/tracing/testing/otlp-receiver.ts';
import { readCpuMs, readResidentMiB } from './fixtures/process-usage.ts';
import { runLoad } from './fixtures/http-load.ts';
import { interleave, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const IMAGE = 'coppice/base:1';
const SHAPE = { image: IMAGE, mem_mib: 256, timeout: 0 };
const CREATE_ROUNDS = 40;
const CPU_ROUNDS = 12;
const CREATES_EACH = 5;
const LOAD_ROUNDS = 15;
const CLIENTS = 8;
const REQUESTS = 2000;
const AGAINST = 'the same without traces';

interface Side {
  name: string;
  service: Service;
  api: Api;
  id: string;
}

async function start(name: string, instance: number, env: Record<string, string>): Promise<Side> {
  const service = await Service.start({ env, instance });
  const api = new Api(service);
  const { id } = await api.create(SHAPE);
  return { name, service, api, id };
}

async function create({ api }: Side): Promise<number> {
  let id = '';
  const elapsedMs = await timeMs(async () => void ({ id } = await api.create(SHAPE)));
  await api.destroy(id);
  return elapsedMs;
}

/** Returns the CPU time of control and the runner for each create and its destroy, in milliseconds. */
async function createMany(side: Side): Promise<number> {
  const before = readRolesCpuMs(side);
  for (let count = 0; count < CREATES_EACH; count += 1) await create(side);
  return (readRolesCpuMs(side) - before) / CREATES_EACH;
}

function readRolesCpuMs({ service }: Side): number {
  return readCpuMs(service.rolePid('control')) + readCpuMs(service.rolePid('runner'));
}

/** Returns the resident memory of control and the runner, in MiB. */
async function readMemory({ service }: Side): Promise<number> {
  return readResidentMiB(service.rolePid('control')) + readResidentMiB(service.rolePid('runner'));
}

/** Returns the CPU time of control for each request, in microseconds. It is less disturbed than the rate. */
async function readRecords({ service, id }: Side): Promise<number> {
  const { hostname, port } = new URL(service.address);
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const headers = { authorization: `Bearer ${API_KEY}` };
  const pid = service.rolePid('control');
  const before = readCpuMs(pid);
  await runLoad(
    { hostname, port, agent, headers, path: `/v1/runs/${id}` },
    { clients: CLIENTS, requests: REQUESTS },
  );
  agent.destroy();
  return ((readCpuMs(pid) - before) * 1000) / REQUESTS;
}

async function measure(sides: readonly Side[]): Promise<Figure[]> {
  const contenders = (what: string, run: (side: Side) => Promise<number>) =>
    sides.map((side) => ({ name: `${what}, ${side.name}`, run: () => run(side) }));
  const creates = await interleave(contenders('create', create), CREATE_ROUNDS);
  const work = await interleave(contenders('CPU time of a create', createMany), CPU_ROUNDS);
  const reads = await interleave(contenders('GET /v1/runs/{id}', readRecords), LOAD_ROUNDS);
  const memory = await interleave(contenders('memory of both roles', readMemory), 1);
  return [
    compare({
      name: 'CPU time of both roles for a create',
      against: AGAINST,
      goal: '–',
      unit: 'ms',
      values: work,
    }),
    compare({ name: 'memory of both roles', against: AGAINST, goal: '–', unit: 'MiB', values: memory }),
    compare({ name: 'create', against: AGAINST, goal: '≤ 1.05', unit: 'ms', values: creates }),
    compare({
      name: 'CPU time of control for a read',
      against: AGAINST,
      goal: '–',
      unit: 'µs',
      values: reads,
    }),
  ];
}

{
  await using stack = new AsyncDisposableStack();
  const receiver = stack.use(await OtlpReceiver.start());
  receiver.manner = 'discard';
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint };
  const traced = await start('traced', 2, { ...endpoint, COPPICE_RATE_LIMIT_RPS: '0' });
  stack.use(traced.service);
  const plain = await start('not traced', 3, { COPPICE_RATE_LIMIT_RPS: '0' });
  stack.use(plain.service);
  report('traces', await traced.service.readAccelerator(), await measure([traced, plain]));
}
