/** Measures what control holds at the moment of a scrape. */
import { Gauge, type Registry } from 'prom-client';
import type { SandboxState } from '@coppice/contract';
import { LIVE_STATES } from '../sandbox/record/live-states.ts';

export interface ControlState {
  countSandboxes: () => ReadonlyMap<SandboxState, number>;
  /** Open requests; `limited` and `streams` are those that the limits of organizations count. */
  openRequests: () => { all: number; limited: number; streams: number };
  databasePool: () => { size: number; idle: number; waiting: number };
}

interface Reading {
  name: string;
  help: string;
  label: string;
  read: () => Iterable<readonly [label: string, value: number]>;
}

export function addStateMetrics(registry: Registry, state: ControlState): void {
  for (const { name, help, label, read } of listReadings(state)) {
    const gauge: Gauge = new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [registry],
      collect: () => {
        for (const [of, value] of read()) gauge.set({ [label]: of }, value);
      },
    });
  }
}

function listReadings({ countSandboxes, openRequests, databasePool }: ControlState): Reading[] {
  return [
    {
      name: 'coppice_sandboxes',
      help: 'Sandboxes of all organizations that have not ended, by state.',
      label: 'state',
      read: () => {
        const counts = countSandboxes();
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
