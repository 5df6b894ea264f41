/** Measures what control holds at the moment of a scrape. */
import type { Logger } from 'pino';
import { Gauge, type Registry } from 'prom-client';
import type { SandboxState } from '@coppice/contract';
import { LIVE_STATES } from '../sandbox/record/live-states.ts';

export interface ControlState {
  /** Those of this control, such that the sum over all controls has each sandbox once. */
  countSandboxes: () => Promise<ReadonlyMap<SandboxState, number>>;
  /** Open requests; `limited` and `streams` are those that the limits of organizations count. */
  openRequests: () => { all: number; limited: number; streams: number };
  databasePool: () => { size: number; idle: number; waiting: number };
}

type Values = Iterable<readonly [label: string, value: number]>;

interface Reading {
  name: string;
  help: string;
  label: string;
  read: () => Values | Promise<Values>;
}

export function addStateMetrics(registry: Registry, state: ControlState, log: Logger): void {
  for (const { name, help, label, read } of listReadings(state)) {
    const gauge: Gauge = new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [registry],
      collect: async () => {
        // Without the database there is no number, rather than an old one.
        gauge.reset();
        try {
          for (const [of, value] of await read()) gauge.set({ [label]: of }, value);
        } catch (error) {
          log.debug({ err: error, metric: name }, 'a metric was not read');
        }
      },
    });
  }
}

function listReadings({ countSandboxes, openRequests, databasePool }: ControlState): Reading[] {
  return [
    {
      name: 'coppice_sandboxes',
      help: 'Sandboxes of all organizations that have not ended, by state, on the runners of this control.',
      label: 'state',
      read: async () => {
        const counts = await countSandboxes();
        return LIVE_STATES.map((state) => [state, counts.get(state) ?? 0] as const);
      },
    },
    {
      name: 'coppice_http_open_requests',
      help: 'Open requests: all, those to guests (limited), and sessions, streams and proxied requests (streams).',
      label: 'kind',
      read: () => Object.entries(openRequests()),
    },
    {
      name: 'coppice_database_connections',
      help: 'Connections to PostgreSQL in the pool: idle and in use; and requests that wait for one.',
      label: 'state',
      read: () => {
        const { size, idle, waiting } = databasePool();
        return Object.entries({ idle, used: size - idle, waiting });
      },
    },
  ];
}
