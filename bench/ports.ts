/** Measures the port proxy, against the same server through the agent's tunnel alone. */
import { Agent, type RequestOptions } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { API_KEY } from '../e2e/fixtures/service/service.ts';
import { resumeAsService, startInGuest } from './fixtures/agent-calls.ts';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { FloorVm, floorInputs } from './fixtures/floor-vm.ts';
import { BareTunnelAgent, fetchOnce, runLoad } from './fixtures/http-load.ts';
import { interleave, summarize } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const PORT = 8000;
const ROUNDS = 10;
const LOAD = { clients: 8, requests: 400 };
const LARGE_BYTES = 64 << 20;
/** Answers `/` with few bytes, other paths with many. It keeps idle connections open: the floor's client needs that. */
const SERVER = `node -e '
const chunk = Buffer.alloc(1 << 16);
require("http").createServer({ keepAliveTimeout: 0 }, (request, response) => {
  if (request.url === "/") return response.end("hello");
  let left = ${LARGE_BYTES};
  const push = () => {
    while (left > 0) { left -= chunk.length; if (!response.write(chunk)) return response.once("drain", push); }
    response.end();
  };
  push();
}).listen(${PORT})'`;

type Way = (path: string) => RequestOptions;

export async function benchPorts(bench: BenchService): Promise<Figure[]> {
  const { id } = await bench.api.create({ image: IMAGE });
  const { vm } = await FloorVm.restore(floorInputs(bench.service, id), 'cf-tap0');
  await resumeAsService(vm.session);
  await startInGuest(vm.session, SERVER);
  await bench.api.exec(id, `${SERVER} >/dev/null 2>&1 &`);
  const { hostname, port } = new URL(bench.service.address);
  const agent = new Agent({ keepAlive: true });
  const headers = { authorization: `Bearer ${API_KEY}` };
  const proxied: Way = (path) => ({
    hostname,
    port,
    agent,
    headers,
    path: `/v1/runs/${id}/proxy/${PORT}${path}`,
  });
  const tunnel = new BareTunnelAgent(vm.session, PORT);
  const bare: Way = (path) => ({ agent: tunnel, path });
  for (const way of [proxied, bare]) await waitUntilServed(way);
  const figures = [...(await measureRequests(proxied, bare)), await measureBytes(proxied, bare)];
  agent.destroy();
  tunnel.destroy();
  await vm.end();
  await bench.api.destroy(id);
  return figures;
}

async function waitUntilServed(way: Way): Promise<void> {
  const end = performance.now() + 60_000;
  while ((await fetchOnce(way('/')).catch(() => 0)) === 0) {
    if (performance.now() > end) throw new Error('the server in the guest does not answer');
    await delay(100);
  }
}

const AGAINST = "the same server through the agent's tunnel alone";

async function measureRequests(proxied: Way, bare: Way): Promise<Figure[]> {
  const latencies: Record<'ours' | 'floor', number[]> = { ours: [], floor: [] };
  const run = async (way: Way, kept: number[]): Promise<number> => {
    const load = await runLoad(way('/'), LOAD);
    kept.push(...load.latencies);
    return load.perSecond;
  };
  const values = await interleave(
    [
      { name: 'requests through the port proxy', run: () => run(proxied, latencies.ours) },
      { name: 'requests through the tunnel', run: () => run(bare, latencies.floor) },
    ],
    ROUNDS,
  );
  const name = `port proxy, requests a second, ${LOAD.clients} clients`;
  const [p99, floorP99] = [latencies.ours, latencies.floor].map(findP99);
  return [
    compare({ name, against: AGAINST, goal: '≥ 0.8', unit: '/s', values }),
    {
      name: 'port proxy, p99 of a request',
      against: AGAINST,
      ratio: (p99 ?? NaN) / (floorP99 ?? NaN),
      goal: '≤ 1.25',
      samples: [
        summarize('a request through the port proxy', 'ms', latencies.ours),
        summarize('a request through the tunnel', 'ms', latencies.floor),
      ],
      note: `p99 ${p99?.toFixed(1)} ms and ${floorP99?.toFixed(1)} ms.`,
    },
  ];
}

function findP99(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * 0.99)] ?? NaN;
}

async function measureBytes(proxied: Way, bare: Way): Promise<Figure> {
  const rate = async (way: Way): Promise<number> => {
    const started = performance.now();
    const sizeBytes = await fetchOnce(way('/large'));
    if (sizeBytes !== LARGE_BYTES) throw new Error(`${sizeBytes} bytes arrived`);
    return sizeBytes / 1000 / (performance.now() - started);
  };
  const values = await interleave(
    [
      { name: 'an answer through the port proxy', run: () => rate(proxied) },
      { name: 'an answer through the tunnel', run: () => rate(bare) },
    ],
    ROUNDS,
  );
  const name = `port proxy, an answer of ${LARGE_BYTES >> 20} MiB`;
  return compare({ name, against: AGAINST, goal: '≥ 0.8', unit: 'MB/s', values });
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('ports', bench.accelerator, await benchPorts(bench));
}
