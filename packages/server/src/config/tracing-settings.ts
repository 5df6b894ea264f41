/**
 * Settings of traces: the standard variables of OpenTelemetry that apply to a service with one exporter, OTLP over
 * HTTP. The library reads none of them itself, so that an invalid one is reported like any other setting.
 * https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
 */
import { isAbsolute } from 'node:path';
import { z } from 'zod';
import type { SamplerConfig, TracingConfig } from '../lib/tracing/tracing-config.ts';
import { ConfigError } from './config-error.ts';
import { isReadable } from './default-paths.mjs';

const TRACES_PATH = 'v1/traces';
const PROTOCOL = 'http/protobuf';
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/u;
const USUAL_DELAY_MS = 5000;
const SHORTEST_DELAY_MS = 10;
const LONGEST_DELAY_MS = 60_000;
const HEADER_VALUE = /^[\x20-\x7e]*$/u;

export const TRACING_SETTINGS = {
  OTEL_EXPORTER_OTLP_ENDPOINT: z.string().optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: z.string().optional(),
  OTEL_EXPORTER_OTLP_HEADERS: z.string().optional(),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: z.string().optional(),
  OTEL_EXPORTER_OTLP_PROTOCOL: z.string().optional(),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: z.string().optional(),
  OTEL_EXPORTER_OTLP_CERTIFICATE: z.string().optional(),
  OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: z.string().optional(),
  OTEL_SERVICE_NAME: z.string().optional(),
  OTEL_RESOURCE_ATTRIBUTES: z.string().optional(),
  OTEL_TRACES_EXPORTER: z.string().optional(),
  OTEL_TRACES_SAMPLER: z.string().optional(),
  OTEL_TRACES_SAMPLER_ARG: z.string().optional(),
  OTEL_BSP_SCHEDULE_DELAY: z.string().optional(),
  OTEL_SDK_DISABLED: z.string().optional(),
  COPPICE_TRACE_CALLERS: z.enum(['link', 'continue'], { error: 'must be link or continue' }).default('link'),
};
type TracingSettings = z.infer<z.ZodObject<typeof TRACING_SETTINGS>>;
type Name = keyof TracingSettings;

/** Returns undefined if no collector is configured: all other variables are then ignored, as they may be for others. */
export function readTracing(settings: TracingSettings): TracingConfig | undefined {
  const isOff =
    settings.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || settings.OTEL_TRACES_EXPORTER === 'none';
  const url = isOff ? undefined : readUrl(settings);
  if (url === undefined) return undefined;
  assertProtocol(settings);
  const [caName, caPath] = choose(settings, 'CERTIFICATE');
  const isPath = caPath === undefined || (isAbsolute(caPath) && isReadable(caPath));
  demand(isPath, caName, 'must be the absolute path of a readable PEM file');
  const serviceName = findValue(settings, 'OTEL_SERVICE_NAME');
  const [headersName, headers = ''] = choose(settings, 'HEADERS');
  return {
    url,
    headers: readHeaders(headersName, headers),
    ...(caPath === undefined ? {} : { caPath }),
    ...(serviceName === undefined ? {} : { serviceName }),
    resource: readPairs('OTEL_RESOURCE_ATTRIBUTES', settings.OTEL_RESOURCE_ATTRIBUTES ?? ''),
    sampler: readSampler(settings),
    batchDelayMs: readDelay(settings),
  };
}

/** By the specification an empty variable counts as unset. */
function findValue(settings: TracingSettings, name: Name): string | undefined {
  const value = settings[name]?.trim();
  return value === '' ? undefined : value;
}

/** The variable for traces precedes the one for all signals. Returns the name of the one that counts, and its value. */
function choose(
  settings: TracingSettings,
  what: 'HEADERS' | 'PROTOCOL' | 'CERTIFICATE',
): [name: Name, value: string | undefined] {
  const own = `OTEL_EXPORTER_OTLP_TRACES_${what}` as const;
  const value = findValue(settings, own);
  if (value !== undefined) return [own, value];
  const common = `OTEL_EXPORTER_OTLP_${what}` as const;
  return [common, findValue(settings, common)];
}

function readUrl(settings: TracingSettings): string | undefined {
  const own = findValue(settings, 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT');
  if (own !== undefined) return parseUrl('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', own).href;
  const base = findValue(settings, 'OTEL_EXPORTER_OTLP_ENDPOINT');
  if (base === undefined) return undefined;
  const url = parseUrl('OTEL_EXPORTER_OTLP_ENDPOINT', base);
  url.pathname = `${url.pathname.replace(/\/$/u, '')}/${TRACES_PATH}`;
  return url.href;
}

function parseUrl(name: Name, text: string): URL {
  const form = 'must be a URL such as http://127.0.0.1:4318';
  demand(/^https?:\/\//u.test(text) && URL.canParse(text), name, form);
  const url = new URL(text);
  demand(
    url.username === '' && url.password === '',
    name,
    'must not contain a password; set OTEL_EXPORTER_OTLP_HEADERS instead',
  );
  return url;
}

function assertProtocol(settings: TracingSettings): void {
  const [name, protocol = PROTOCOL] = choose(settings, 'PROTOCOL');
  const remedy = 'unset it, and use the collector’s port for HTTP (usually 4318)';
  demand(
    protocol === PROTOCOL,
    name,
    `must be ${PROTOCOL}, the only protocol that the service speaks; ${remedy}`,
  );
  const exporter = findValue(settings, 'OTEL_TRACES_EXPORTER') ?? 'otlp';
  demand(exporter === 'otlp', 'OTEL_TRACES_EXPORTER', 'must be otlp or none');
}

function readHeaders(name: Name, text: string): Record<string, string> {
  const headers = readPairs(name, text);
  for (const [header, value] of Object.entries(headers)) {
    const isValid = TOKEN.test(header) && HEADER_VALUE.test(value);
    demand(isValid, name, 'must be name=value pairs of HTTP headers, separated by commas');
  }
  return headers;
}

/** Parses `name=value,name=value` with percent-encoded values. The error shows no value, as it may be secret. */
function readPairs(name: Name, text: string): Record<string, string> {
  const pairs = text.split(',').filter((pair) => pair.trim() !== '');
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      const key = pair.slice(0, at).trim();
      demand(at > 0 && key !== '', name, 'must be name=value pairs, separated by commas');
      return [key, decode(name, pair.slice(at + 1).trim())];
    }),
  );
}

function decode(name: Name, text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ConfigError(`${name}: has a value with an invalid percent-encoding; write "%" as %25`);
  }
}

const SAMPLERS = new Map<string, (ratio: number) => SamplerConfig>([
  ['always_on', () => ({ ratio: 1, followsCaller: false })],
  ['always_off', () => ({ ratio: 0, followsCaller: false })],
  ['traceidratio', (ratio) => ({ ratio, followsCaller: false })],
  ['parentbased_always_on', () => ({ ratio: 1, followsCaller: true })],
  ['parentbased_always_off', () => ({ ratio: 0, followsCaller: true })],
  ['parentbased_traceidratio', (ratio) => ({ ratio, followsCaller: true })],
]);

function readSampler(settings: TracingSettings): SamplerConfig {
  const name = findValue(settings, 'OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on';
  const build = SAMPLERS.get(name);
  if (build === undefined)
    throw new ConfigError(`OTEL_TRACES_SAMPLER: must be one of ${[...SAMPLERS.keys()].join(', ')}`);
  const ratio = Number(findValue(settings, 'OTEL_TRACES_SAMPLER_ARG') ?? 1);
  demand(ratio >= 0 && ratio <= 1, 'OTEL_TRACES_SAMPLER_ARG', 'must be a number from 0 to 1');
  return build(ratio);
}

function readDelay(settings: TracingSettings): number {
  const name = 'OTEL_BSP_SCHEDULE_DELAY';
  const delayMs = Number(findValue(settings, name) ?? USUAL_DELAY_MS);
  const isValid = Number.isInteger(delayMs) && delayMs >= SHORTEST_DELAY_MS && delayMs <= LONGEST_DELAY_MS;
  demand(isValid, name, `must be a number of milliseconds from ${SHORTEST_DELAY_MS} to ${LONGEST_DELAY_MS}`);
  return delayMs;
}

function demand(holds: boolean, name: Name, message: string): asserts holds {
  if (!holds) throw new ConfigError(`${name}: ${message}`);
}
