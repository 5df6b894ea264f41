import type { Logger } from 'pino';
import type { TracingConfig } from './tracing-config.ts';
import { installTracer } from './tracing.ts';

export interface OpenTracing {
  /** Exports what is recorded, within a deadline. Resolves with false if an export is still under way. */
  close: () => Promise<boolean>;
}

/**
 * Starts to record and export spans of a role. Loads OpenTelemetry whole: control later loses the right to read files
 * of the program.
 */
export async function openTracing(
  config: TracingConfig,
  role: { name: string; version: string; log: Logger },
): Promise<OpenTracing> {
  const { OtelTracer } = await import('./otel-tracer.ts');
  const tracer = OtelTracer.open(config, role);
  const installed = installTracer(tracer);
  return {
    close: () => {
      installed[Symbol.dispose]();
      return tracer.close();
    },
  };
}
