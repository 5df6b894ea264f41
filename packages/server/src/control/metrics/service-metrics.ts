/**
 * The metrics of the service, for Prometheus. The labels have few values: no names of organizations, no paths, and no ids but those
 * of this control and its runners. Runners are measured when they are asked for, so that an installation without a scraper
 * measures nothing.
 */
import type { Logger } from 'pino';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { Runners } from '../runners/runners.ts';
import { SingleFlight } from '../../lib/waiting/single-flight.ts';
import { addControlMetrics, type ControlCounts } from './control-metrics.ts';
import { RequestMetrics } from './request-metrics.ts';
import { RunnerGauges, type MeasuredRunner } from './runner-gauges.ts';
import { StartMetrics } from './start-metrics.ts';
import { addStateMetrics, type ControlState } from './state-metrics.ts';

export interface ServiceMetricsParts {
  version: string;
  runners: Pick<Runners, 'list'>;
  log: Logger;
}

export class ServiceMetrics {
  readonly requests: RequestMetrics;
  readonly starts: StartMetrics;
  readonly #registry = new Registry();
  readonly #gauges: RunnerGauges;
  readonly #runners: Pick<Runners, 'list'>;
  readonly #log: Logger;
  readonly #scrapes = new SingleFlight<string>();

  constructor({ version, runners, log }: ServiceMetricsParts) {
    this.#runners = runners;
    this.#log = log;
    this.requests = new RequestMetrics(this.#registry);
    this.starts = new StartMetrics(this.#registry);
    this.#gauges = new RunnerGauges(this.#registry);
    new Gauge({
      name: 'coppice_build_info',
      help: 'Always 1. The label is the version of the service.',
      labelNames: ['version'],
      registers: [this.#registry],
    }).set({ version }, 1);
  }

  /** Adds what control holds, and the usual metrics of its process. Once, when its parts exist. */
  watch(state: ControlState, counts: ControlCounts): void {
    addStateMetrics(this.#registry, state, this.#log);
    addControlMetrics(this.#registry, counts);
    collectDefaultMetrics({ register: this.#registry });
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Returns all metrics in the text format. Concurrent calls share one reading. */
  write(): Promise<string> {
    return this.#scrapes.run('', async () => {
      this.#gauges.set(await Promise.all(this.#runners.list().map((runner) => this.#measure(runner))));
      return this.#registry.metrics();
    });
  }

  async #measure({ id, client, isCordoned, presence }: OwnedRunner): Promise<MeasuredRunner> {
    const seen = { id, isCordoned, heartbeatAgeMs: presence.ageMs };
    try {
      return { ...seen, metrics: await client.measures.runner() };
    } catch (error) {
      this.#log.debug({ err: error, runner_id: id }, 'the runner was not measured');
      return { ...seen, metrics: undefined };
    }
  }
}
