/** Measures policies of 10,000 rules: the time to check and to load one, and the time of a verdict on a connection. */
import {
  buildNetworkPolicy,
  buildRuleContext,
  compileClosedAddresses,
  compileNetworkPolicy,
  judge,
  judgeQuestion,
  NetworkRules,
  type CompiledPolicy,
} from '@coppice/contract';
import { summarize, type Sample } from './fixtures/measure.ts';
import { report, type Figure } from './fixtures/report.ts';

const RULES_OF_EACH_KIND = 2000;
const ROUNDS = 30;
const MATCHES = 20_000;
const LOAD_GOAL = '≤ 50 ms';
const MATCH_GOAL = 'microseconds';

const context = buildRuleContext({ openPrivateRanges: [], registries: {} });
const closed = compileClosedAddresses({ openPrivateRanges: [], own: ['198.51.100.1'] });

const octets = (index: number): string => `${(index >> 8) & 0xff}.${index & 0xff}`;

/** Makes rules of names, domains, IPv4 ranges, IPv4 addresses and IPv6 ranges. A quarter of each is denied. */
function makeRules(): NetworkRules {
  const kinds: ((index: number) => string)[] = [
    (index) => `host-${index}.service.example`,
    (index) => `*.zone-${index}.example`,
    (index) => `20.${octets(index)}.0/24`,
    (index) => `23.1.${octets(index)}`,
    (index) => `2a00:${index.toString(16)}::/48`,
  ];
  const all = kinds.flatMap((make) => Array.from({ length: RULES_OF_EACH_KIND }, (_, index) => make(index)));
  return { allow: all.filter((_, at) => at % 4 !== 0), deny: all.filter((_, at) => at % 4 === 0) };
}

function timeEach(name: string, work: (index: number) => unknown): Sample {
  const values: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const started = performance.now();
    for (let index = 0; index < MATCHES; index += 1) work(index % RULES_OF_EACH_KIND);
    values.push(((performance.now() - started) * 1000) / MATCHES);
  }
  return summarize(name, 'µs', values);
}

/** `first` is the time of code that has not run before: the first sandbox of a runner waits that long. */
function timeLoads(name: string, work: () => unknown): { first: number; sample: Sample } {
  const values: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const started = performance.now();
    work();
    values.push(performance.now() - started);
  }
  return { first: values[0] ?? NaN, sample: summarize(name, 'ms', values) };
}

function measureLoads(rules: NetworkRules): { figure: Figure; policy: CompiledPolicy } {
  const stored = JSON.stringify(buildNetworkPolicy(rules, { field: 'network', context }).policy);
  const load = (): CompiledPolicy => compileNetworkPolicy(JSON.parse(stored), closed);
  const loaded = timeLoads('loading the stored policy', load);
  const body = JSON.stringify(rules);
  const made = timeLoads('checking it in a request', () =>
    buildNetworkPolicy(NetworkRules.parse(JSON.parse(body)), { field: 'network', context }),
  );
  const figure: Figure = {
    name: `a policy of ${5 * RULES_OF_EACH_KIND} rules`,
    against: '–',
    ratio: undefined,
    goal: LOAD_GOAL,
    samples: [loaded.sample, made.sample],
    note: `the first load took ${loaded.first.toFixed(1)} ms`,
  };
  return { figure, policy: load() };
}

function measureMatches(policy: CompiledPolicy): Figure {
  const at = '203.0.113.7';
  const deep = `${'a.'.repeat(60)}zone`;
  return {
    name: 'a verdict',
    against: '–',
    ratio: undefined,
    goal: MATCH_GOAL,
    samples: [
      timeEach('by a name', (n) => judge(policy, { address: at, name: `host-${n}.service.example` })),
      timeEach('by a domain', (n) => judge(policy, { address: at, name: `a.b.zone-${n}.example` })),
      timeEach('by a name of 62 labels that matches nothing', (n) =>
        judge(policy, { address: at, name: `${deep}${n}.x` }),
      ),
      timeEach('by an IPv4 address', (n) => judge(policy, { address: `20.${octets(n)}.9` })),
      timeEach('by an IPv6 address', (n) => judge(policy, { address: `2a00:${n.toString(16)}::9` })),
      timeEach('by an address that matches nothing', (n) => judge(policy, { address: `25.1.${octets(n)}` })),
      timeEach('on a question to the resolver', (n) => judgeQuestion(policy, `host-${n}.service.example`)),
    ],
  };
}

export function benchNetworkPolicy(): Figure[] {
  const rules = makeRules();
  const { figure, policy } = measureLoads(rules);
  return [figure, measureMatches(policy)];
}

if (import.meta.main) report('network-policy', 'no VM', benchNetworkPolicy());
