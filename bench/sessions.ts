/** Measures streams from a client's view: the first byte, the echo of a key press, and the memory of an idle socket. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { API_KEY } from '../e2e/fixtures/service/service.ts';
import { agentExec, resumeAsService } from './fixtures/agent-calls.ts';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { FloorVm, floorInputs } from './fixtures/floor-vm.ts';
import { interleave, summarize, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 40;
const ECHO_WARMUP = 20;
const SOCKETS = 200;
/** Time for memory to settle: Node decides when it collects garbage. */
const SETTLE_MS = 10_000;

const headers = { authorization: `Bearer ${API_KEY}` };

export async function benchSessions(bench: BenchService): Promise<Figure[]> {
  const { id } = await bench.api.create({ image: IMAGE });
  const { vm } = await FloorVm.restore(floorInputs(bench.service, id), 'cf-tap0');
  await resumeAsService(vm.session);
  const values = await interleave(
    [
      { name: 'first byte of exec/stream', run: () => timeMs(() => firstEvent(bench, id)) },
      {
        name: 'the same command straight to the agent',
        run: () => timeMs(() => agentExec(vm.session, 'echo x')),
      },
    ],
    ROUNDS,
  );
  await vm.end();
  const against = 'the same command straight to the agent, to its end';
  const figures = [
    compare({ name: 'first byte of a stream', against, goal: '–', unit: 'ms', values }),
    await measureEcho(bench, id),
    await measureIdleSockets(bench, id),
  ];
  await bench.api.destroy(id);
  return figures;
}

async function firstEvent(bench: BenchService, id: string): Promise<void> {
  const answer = await bench.api.fetch('POST', `/v1/runs/${id}/exec/stream`, { body: { command: 'echo x' } });
  const reader = answer.body?.getReader();
  const { value } = (await reader?.read()) ?? {};
  if (!Buffer.from(value ?? []).includes('"x\\n"')) throw new Error('the first event is not the output');
  await reader?.cancel();
}

async function open(bench: BenchService, path: string): Promise<WebSocket> {
  const socket = new WebSocket(`${bench.service.address.replace('http', 'ws')}${path}`, { headers });
  await once(socket, 'open');
  return socket;
}

/**
 * Measures the time from a key press to its echo, which comes from the terminal's line discipline, not from a program.
 */
async function measureEcho(bench: BenchService, id: string): Promise<Figure> {
  const socket = await open(bench, `/v1/runs/${id}/terminal?command=cat`);
  const press = async (): Promise<void> => {
    socket.send(Buffer.from('x'));
    await once(socket, 'message');
  };
  for (let count = 0; count < ECHO_WARMUP; count += 1) await press();
  const values: number[] = [];
  for (let count = 0; count < ROUNDS; count += 1) values.push(await timeMs(press));
  socket.close();
  return {
    name: 'echo of a key in a terminal',
    against: '–',
    ratio: undefined,
    goal: '–',
    samples: [summarize('echo of a key in a terminal', 'ms', values)],
  };
}

async function measureIdleSockets(bench: BenchService, id: string): Promise<Figure> {
  const memory = (): number =>
    readResidentKiB(bench.service.rolePid('control')) + readResidentKiB(bench.service.rolePid('runner'));
  const sockets: WebSocket[] = [];
  const openMany = async (): Promise<void> => {
    for (let count = 0; count < SOCKETS; count += 1)
      sockets.push(
        await open(bench, `/v1/runs/${id}/exec/ws?command=${encodeURIComponent('exec sleep 1000')}`),
      );
    await delay(SETTLE_MS);
  };
  // The first sockets grow the processes to the size that serving needs; the second batch shows the cost of a socket.
  await openMany();
  const before = memory();
  await openMany();
  const each = (memory() - before) / SOCKETS;
  for (const socket of sockets) socket.terminate();
  return {
    name: 'memory of an idle WebSocket, in control and runner',
    against: '–',
    ratio: undefined,
    goal: '–',
    samples: [summarize('an idle WebSocket with a command', 'KiB', [each])],
  };
}

function readResidentKiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/mu.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('sessions', bench.accelerator, await benchSessions(bench));
}
