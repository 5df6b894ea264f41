/** Measures this control among the others of the installation, at the moment of a scrape. */
import type { Registry } from 'prom-client';
import { fillMetric, openMetric, type Reading } from './reading.ts';

export interface ControlCounts {
  /** Id of this control. */
  id: string;
  /** How many controls are alive. */
  controls: { readonly now: number };
  lease: {
    readonly isLeading: boolean;
    /** For how long this control may still use the database without a renewal. */
    readonly leftMs: number;
    /** How long the last renewal took. */
    readonly renewalMs: number;
  };
  /** Runners that this control has got, and that it has given to another one, since its start. */
  fleet: { readonly counts: Readonly<{ taken: number; handedOver: number }> };
  /** Requests that it has forwarded, by outcome. Undefined for a control that is alone. */
  requestForwarder: { readonly counts: Readonly<Record<string, number>> } | undefined;
}

export function addControlMetrics(registry: Registry, counts: ControlCounts): void {
  for (const reading of listReadings(counts)) {
    const collect = (): void => {
      metric.reset();
      fillMetric(metric, reading, undefined);
    };
    const metric = openMetric(reading, { registry, collect });
  }
}

function listReadings({ id, controls, lease, fleet, requestForwarder }: ControlCounts): Reading[] {
  return [
    {
      name: 'coppice_controls',
      help: 'Controls of the installation that are alive, as this one last read.',
      read: () => controls.now,
    },
    {
      name: 'coppice_control_leading',
      help: 'Whether this control does the work that belongs to no runner: 1, or 0. The label is its id.',
      label: 'control',
      read: () => ({ [id]: lease.isLeading ? 1 : 0 }),
    },
    {
      name: 'coppice_control_lease_left_seconds',
      help: 'For how long this control may use the database without renewing its lease. At 0 it answers 503.',
      read: () => lease.leftMs / 1000,
    },
    {
      name: 'coppice_control_lease_renewal_seconds',
      help: 'How long the last renewal of the lease took.',
      read: () => lease.renewalMs / 1000,
    },
    {
      name: 'coppice_control_runners_total',
      help: 'Runners that this control has got (taken), and given to one that has fewer (handed_over).',
      label: 'event',
      isCounter: true,
      read: () => ({ taken: fleet.counts.taken, handed_over: fleet.counts.handedOver }),
    },
    {
      name: 'coppice_forwarded_requests_total',
      help: 'Requests that were forwarded to the owner of a runner: with an answer, or refused as no owner gave one.',
      label: 'outcome',
      isCounter: true,
      read: () => requestForwarder?.counts ?? { answered: 0, refused: 0 },
    },
  ];
}
