/**
 * Measures the cost of a network policy: the egress proxy against the kernel's forwarding, with the same bytes, program
 * and servers; the resolver; requests with a credential; and a change of policy with many open connections.
 */
import { https, raw, request, type Attempt } from '../e2e/fixtures/egress/egress-attempt.ts';
import type { EgressGuest, LoadOrder } from '../e2e/fixtures/egress/egress-guest.ts';
import { PLACES, PORTS, VENDOR_HOSTS } from '../e2e/fixtures/internet/zone.ts';
import { POLICY, startEgressBench, type EgressBench } from './fixtures/egress-bench.ts';
import { interleave, summarize, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 7;
const LARGE_BYTES = 64 << 20;
const CONNECTIONS = { clients: 8, count: 200 };
const ONE_BY_ONE = { clients: 1, count: 30 };
/** All rounds together stay within a guest's burst limit: the resolver's speed is measured, not its limit. */
const QUESTIONS = { clients: 5, count: 50 };
const OPEN_FLOWS = 1000;
const FORWARDED = "the kernel's forwarding, in a sandbox without a policy";
const { allowed, other, vendors } = PLACES;

const sendBytes = raw('bytes', `${other}:${PORTS.bytes}`, [{ text: `${LARGE_BYTES}\n` }]);
const echo = raw('echo', `${other}:${PORTS.echo}`, [{ text: 'hello\n' }]);
const byName = https('by name', allowed, 'allowed.example');

/** A question for the address of `allowed.example`, as it goes over the wire. */
const QUESTION_HEX = Buffer.concat([
  Buffer.from([0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
  ...['allowed', 'example'].map((label) => Buffer.from([label.length, ...Buffer.from(label)])),
  Buffer.from([0, 0, 1, 0, 1]),
]).toString('hex');

const median = (values: readonly number[]): number => summarize('', '', values).median;

/** Runs the same load in both sandboxes, in turn. `read` turns the times of a run into a figure. */
async function compareLoads(
  { proxy, kernel }: EgressBench,
  order: LoadOrder,
  figure: {
    name: string;
    unit: string;
    read: (run: { ms: number; firstByteMs: readonly number[] }) => number;
  },
): Promise<Figure> {
  const once = async (guest: EgressGuest): Promise<number> => {
    const { ms, first_byte_ms: firstByteMs } = await guest.load(order);
    return figure.read({ ms, firstByteMs });
  };
  const values = await interleave(
    [
      { name: `${figure.name}, through the proxy`, run: () => once(proxy) },
      { name: `${figure.name}, forwarded`, run: () => once(kernel) },
    ],
    ROUNDS,
  );
  const told = compare({ name: figure.name, against: FORWARDED, goal: '–', unit: figure.unit, values });
  const note = `${(told.ours.median - told.floor.median).toFixed(2)} ${figure.unit} more in the median.`;
  return figure.unit === 'ms' ? { ...told, note } : told;
}

async function measureProxy(bench: EgressBench): Promise<Figure[]> {
  const perSecond =
    (count: number) =>
    ({ ms }: { ms: number }): number =>
      (count * 1000) / ms;
  const firstByte = ({ firstByteMs }: { firstByteMs: readonly number[] }): number => median(firstByteMs);
  return [
    await compareLoads(
      bench,
      { through: sendBytes, clients: 1, count: 1, bytes: LARGE_BYTES },
      {
        name: `egress, an answer of ${LARGE_BYTES >> 20} MiB`,
        unit: 'MB/s',
        read: perSecond(LARGE_BYTES / 1e6),
      },
    ),
    await compareLoads(
      bench,
      { through: echo, ...CONNECTIONS },
      { name: 'egress, connections a second', unit: '/s', read: perSecond(CONNECTIONS.count) },
    ),
    await compareLoads(
      bench,
      { through: echo, ...ONE_BY_ONE },
      { name: 'egress, from connect to the first byte, by address', unit: 'ms', read: firstByte },
    ),
    await compareLoads(
      bench,
      { through: byName, ...ONE_BY_ONE },
      { name: 'egress, from connect to the first byte, TLS by name', unit: 'ms', read: firstByte },
    ),
  ];
}

async function measureResolver(bench: EgressBench): Promise<Figure> {
  const resolver = await bench.proxy.read("awk '/^nameserver/ {print $2; exit}' /etc/resolv.conf");
  const through: Attempt = {
    name: 'a question',
    kind: 'udp',
    address: `${resolver}:${PORTS.dns}`,
    writes: [{ hex: QUESTION_HEX }],
  };
  return compareLoads(
    bench,
    { through, ...QUESTIONS },
    { name: 'resolver, questions a second', unit: '/s', read: ({ ms }) => (QUESTIONS.count * 1000) / ms },
  );
}

/**
 * Measures the credential proxy. The guest sends plain HTTP to it, and it keeps its connections to the vendor open;
 * without it each request costs a TLS handshake.
 */
async function measureCredentials({ kernel }: EgressBench): Promise<Figure> {
  const ask = async (through: Attempt): Promise<number> =>
    median((await kernel.load({ through, ...ONE_BY_ONE })).first_byte_ms);
  const proxied = raw('with a credential', '169.254.169.254:8014', [
    { text: request('169.254.169.254:8014', '/proxy/openai/models') },
  ]);
  const values = await interleave(
    [
      { name: 'a request by the credential proxy', run: () => ask(proxied) },
      {
        name: 'the same request to the vendor',
        run: () => ask(https('direct', vendors, VENDOR_HOSTS.openai)),
      },
    ],
    ROUNDS,
  );
  const name = 'credential proxy, from connect to the first byte';
  const against = "the same request with the guest's own TLS, forwarded by the kernel";
  return compare({ name, against, goal: '–', unit: 'ms', values });
}

/** Measures a change of policy. Both policies allow all open connections, so connections are judged but not closed. */
async function measureChange({ proxy }: EgressBench): Promise<Figure> {
  const other = { ...POLICY, deny: [...POLICY.deny, 'more.example'] };
  let isOther = false;
  const change = async (): Promise<number> => {
    isOther = !isOther;
    const network = isOther ? other : POLICY;
    return timeMs(() => proxy.putNetwork({ network }));
  };
  await change();
  const idle: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) idle.push(await change());
  await proxy.hold('open', OPEN_FLOWS, echo);
  const busy: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) busy.push(await change());
  const alive = (await proxy.ping(30_000))['open']?.alive;
  if (alive !== OPEN_FLOWS) throw new Error(`${alive} of ${OPEN_FLOWS} connections are left`);
  await proxy.release();
  const name = `a change of policy with ${OPEN_FLOWS} open connections`;
  const values = new Map([
    [name, busy],
    ['a change of policy with none', idle],
  ]);
  return compare({ name, against: 'the same with none', goal: '–', unit: 'ms', values });
}

export async function benchEgress(bench: EgressBench): Promise<Figure[]> {
  return [
    ...(await measureProxy(bench)),
    await measureResolver(bench),
    await measureCredentials(bench),
    await measureChange(bench),
  ];
}

if (import.meta.main) {
  await using bench = await startEgressBench();
  report('egress', bench.accelerator, await benchEgress(bench));
}
