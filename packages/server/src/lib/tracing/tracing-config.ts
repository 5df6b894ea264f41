/** Where traces go, and which; made by config/tracing-settings.ts from the variables of OpenTelemetry. */
export interface TracingConfig {
  /** URL to which spans are posted. */
  url: string;
  /** They may be secret. */
  headers: Readonly<Record<string, string>>;
  /** File of the authorities of the collector's certificate; absent for those of the system. */
  caPath?: string;
  /** Absent: one name for each role. */
  serviceName?: string;
  /** Attributes of every span's resource. */
  resource: Readonly<Record<string, string>>;
  sampler: SamplerConfig;
  /** Longest time that a span waits for others of its batch. */
  batchDelayMs: number;
}

export interface SamplerConfig {
  /** Part of the traces that is recorded, from 0 to 1. */
  ratio: number;
  /** Whether a trace that continues a caller's is recorded if the caller says so. */
  followsCaller: boolean;
}
