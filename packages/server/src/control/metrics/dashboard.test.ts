/** The dashboard of Grafana queries only metrics that exist, by labels that they have. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import pino from 'pino';
import type { Runners } from '../runners/runners.ts';
import { RUNNER_METRICS } from '../testing/fakes/fake-metrics.ts';
import { ServiceMetrics } from './service-metrics.ts';

const PATH = join(import.meta.dirname, '../../../../../deploy/grafana/coppice.json');
/** Words of PromQL that are no names of metrics. Names of functions are followed by a parenthesis. */
const KEYWORDS = new Set(['and', 'or', 'unless', 'on', 'ignoring', 'offset', 'bool']);
/** Labels that Prometheus itself adds, and that of histograms. */
const KNOWN_LABELS = new Set(['job', 'instance', 'le']);

interface Panel {
  title: string;
  targets?: { expr: string; legendFormat: string }[];
}

interface Query {
  title: string;
  expr: string;
  legend: string;
}

/** The labels of each metric that a scrape can have. */
let labelsOf: Map<string, Set<string>>;
let queries: Query[];

before(async () => {
  labelsOf = parseLabels(await scrapeAll());
  const { panels } = JSON.parse(readFileSync(PATH, 'utf8')) as { panels: Panel[] };
  queries = panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat: legend }) => ({ title, expr, legend })),
  );
});

/** Every metric has at least one value. */
async function scrapeAll(): Promise<string> {
  const log = pino({ level: 'silent' });
  const client = { measures: { runner: async () => RUNNER_METRICS } };
  const runner = { id: 'runner-0', client, isCordoned: false, presence: { ageMs: 1 } };
  const runners = { list: () => [runner] } as unknown as Runners;
  const metrics = new ServiceMetrics({ version: '1', runners, log });
  metrics.watch(
    {
      countSandboxes: () => Promise.resolve(new Map()),
      openRequests: () => ({ all: 0, limited: 0, streams: 0 }),
      databasePool: () => ({ size: 0, idle: 0, waiting: 0 }),
    },
    {
      id: 'ctl0',
      controls: { now: 1 },
      lease: { isLeading: true, leftMs: 1, renewalMs: 1 },
      fleet: { counts: { taken: 1, handedOver: 0 } },
      requestForwarder: undefined,
    },
  );
  metrics.requests.note({ method: 'GET', route: '/', status: 200, durationMs: 1 });
  metrics.requests.countError('internal');
  metrics.starts.note({ kind: 'create', outcome: 'ok', durationMs: 1, timingsMs: { image: 1 } });
  return metrics.write();
}

function parseLabels(text: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const line of text.split('\n')) {
    const [, name, labels = ''] = /^(\w+)(?:\{(.*)\})? /u.exec(line) ?? [];
    if (name === undefined) continue;
    const names = [...labels.matchAll(/(\w+)="/gu)].flatMap(([, label]) => label ?? []);
    found.set(name, new Set([...(found.get(name) ?? []), ...names]));
  }
  return found;
}

/** Returns the names of metrics, and of the labels that select or group. */
function parseQuery(expr: string): { metrics: string[]; labels: string[] } {
  const labels: string[] = [];
  const take = (text: string): string => {
    labels.push(...(text.match(/[a-z_]\w*/giu) ?? []));
    return ' ';
  };
  const rest = expr
    .replaceAll(/"[^"]*"/gu, '')
    .replaceAll(/\[[^\]]*\]/gu, ' ')
    .replaceAll(/\{([^}]*)\}/gu, (_, selectors: string) => take(selectors))
    .replaceAll(/\b(?:by|without|on|ignoring)\s*\(([^)]*)\)/gu, (_, names: string) => take(names));
  const metrics = [...rest.matchAll(/[a-z_:][\w:]*(?!\w*\s*\()/giu)].map(([name]) => name);
  return { metrics: metrics.filter((name) => !KEYWORDS.has(name)), labels };
}

test('every query of the dashboard names metrics that exist', () => {
  assert.ok(queries.length > 20);
  for (const { title, expr } of queries) {
    const { metrics } = parseQuery(expr);
    assert.ok(metrics.length > 0, title);
    for (const name of metrics) assert.ok(labelsOf.has(name), `${title}: ${name}`);
  }
});

test('every query selects and groups by labels of its metrics, and its legend shows such labels', () => {
  for (const { title, expr, legend } of queries) {
    const { metrics, labels } = parseQuery(expr);
    const shown = [...legend.matchAll(/\{\{(\w+)\}\}/gu)].flatMap(([, label]) => label ?? []);
    for (const label of [...labels, ...shown]) {
      const isKnown = KNOWN_LABELS.has(label) || metrics.every((name) => labelsOf.get(name)?.has(label));
      assert.ok(isKnown, `${title}: ${label}`);
    }
  }
});

test('the dashboard shows every metric of the service', () => {
  const toFamily = (name: string): string => name.replace(/_(?:bucket|sum|count)$/u, '');
  const shown = new Set(queries.flatMap(({ expr }) => parseQuery(expr).metrics.map(toFamily)));
  const missing = [...labelsOf.keys()]
    .map(toFamily)
    .filter((name) => name.startsWith('coppice_') && !shown.has(name));
  assert.deepEqual([...new Set(missing)], []);
});

test('the names in a query are found', () => {
  assert.deepEqual(
    parseQuery('sum by (a, b) (rate(x_total{c="d", e=~"f"}[$__rate_interval])) / y > bool 2'),
    {
      metrics: ['x_total', 'y'],
      labels: ['c', 'e', 'a', 'b'],
    },
  );
});
