/** Settings of the API on the network: TLS, or plain HTTP where no third party can listen in, and proxies. */
import { BlockList, isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { splitList } from './comma-list.ts';
import { ConfigError } from './config-error.ts';
import { parseAddressRange } from '../control/http/requests/client-address.ts';
import type { PreviewDomain } from '../control/ports/preview-origins.ts';
import type { TlsPaths } from '../lib/tls/tls-pair.ts';

const MAX_HSTS_SECONDS = 63_072_000;
const HSTS_ERROR = `must be a whole number of seconds from 0 (off) to ${MAX_HSTS_SECONDS}`;

const PemPath = z
  .string()
  .refine((path) => isAbsolute(path), { error: 'must be an absolute path of a PEM file' })
  .optional();

const AddressRanges = z.string().transform((text, context) => {
  const ranges = splitList(text);
  const wrong = ranges.find((range) => parseAddressRange(range) === undefined);
  if (wrong === undefined) return ranges;
  const message = `"${wrong}" is not an IP address or a range such as 10.0.0.0/8`;
  context.addIssue({ code: 'custom', message });
  return z.NEVER;
});

const Origins = z.string().transform((text, context) => {
  const origins = splitList(text);
  const wrong = origins.find((origin) => origin !== '*' && !isOrigin(origin));
  if (wrong === undefined) return origins;
  const message = `"${wrong}" is not an origin as browsers send it, such as https://app.example.com, and not *`;
  context.addIssue({ code: 'custom', message });
  return z.NEVER;
});

function isOrigin(text: string): boolean {
  return /^https?:/u.test(text) && URL.canParse(text) && new URL(text).origin === text;
}

const PREVIEW_DOMAIN = /^(?:(https?):\/\/)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::(\d{1,5}))?$/iu;

/** Parent domain of previews. Each port of a sandbox has its own name below it, so it cannot be an address. */
const PreviewDomainText = z.string().transform((text, context): PreviewDomain => {
  const [, scheme, name = '', port] = PREVIEW_DOMAIN.exec(text) ?? [];
  if (name === '' || isIP(name) !== 0 || Number(port ?? 1) < 1 || Number(port ?? 1) > 65_535) {
    const message = `"${text}" is not a domain such as localhost or https://preview.example.com[:port]`;
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  }
  return {
    name: name.toLowerCase(),
    ...(scheme === undefined ? {} : { scheme: scheme.toLowerCase() === 'https' ? 'https' : 'http' }),
    ...(port === undefined ? {} : { port: Number(port) }),
  };
});

export const EXPOSURE_SETTINGS = {
  COPPICE_TLS_CERT: PemPath,
  COPPICE_TLS_KEY: PemPath,
  COPPICE_ALLOW_PLAIN_HTTP: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .default('false')
    .transform((text) => text === 'true'),
  COPPICE_HSTS_SECONDS: z.coerce
    .number({ error: HSTS_ERROR })
    .int({ error: HSTS_ERROR })
    .min(0, { error: HSTS_ERROR })
    .max(MAX_HSTS_SECONDS, { error: HSTS_ERROR })
    .default(0),
  COPPICE_TRUSTED_PROXIES: AddressRanges.prefault(''),
  COPPICE_CORS_ORIGINS: Origins.prefault('*'),
  COPPICE_PREVIEW_DOMAIN: PreviewDomainText.prefault('localhost'),
};

const ExposureSettings = z.object(EXPOSURE_SETTINGS);

export interface ExposureConfig {
  /** Undefined for plain HTTP. */
  tls: TlsPaths | undefined;
  hstsSeconds: number;
  trustedProxies: string[];
  corsOrigins: string[];
  previewDomain: PreviewDomain;
}

/** Builds the configuration. Throws ConfigError for settings that are invalid only in combination. */
export function readExposure(
  settings: z.infer<typeof ExposureSettings>,
  listen: { host: string; port: number },
): ExposureConfig {
  const tls = pairPaths(settings.COPPICE_TLS_CERT, settings.COPPICE_TLS_KEY);
  const hstsSeconds = settings.COPPICE_HSTS_SECONDS;
  if (tls === undefined && !settings.COPPICE_ALLOW_PLAIN_HTTP) assertLoopback(listen.host);
  if (tls === undefined && hstsSeconds > 0) {
    throw new ConfigError(
      'COPPICE_HSTS_SECONDS: browsers respect it only over TLS; set COPPICE_TLS_CERT and COPPICE_TLS_KEY, or let the proxy send it',
    );
  }
  return {
    tls,
    hstsSeconds,
    trustedProxies: settings.COPPICE_TRUSTED_PROXIES,
    corsOrigins: settings.COPPICE_CORS_ORIGINS,
    previewDomain: settings.COPPICE_PREVIEW_DOMAIN,
  };
}

function pairPaths(certPath: string | undefined, keyPath: string | undefined): TlsPaths | undefined {
  if (certPath !== undefined && keyPath !== undefined) return { certPath, keyPath };
  if (certPath === undefined && keyPath === undefined) return undefined;
  const [given, missing] =
    certPath === undefined
      ? ['COPPICE_TLS_KEY', 'COPPICE_TLS_CERT']
      : ['COPPICE_TLS_CERT', 'COPPICE_TLS_KEY'];
  throw new ConfigError(`${missing}: is missing; ${given} is set, and TLS needs both`);
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

function assertLoopback(host: string): void {
  const family = isIP(host) === 6 ? 'ipv6' : 'ipv4';
  if (host === 'localhost' || LOOPBACK.check(host, family)) return;
  throw new ConfigError(
    `COPPICE_LISTEN: ${host} is not a loopback address, and plain HTTP would expose API keys on the network. ` +
      'Set COPPICE_TLS_CERT and COPPICE_TLS_KEY, or listen on 127.0.0.1 behind a proxy with TLS, or set COPPICE_ALLOW_PLAIN_HTTP=true',
  );
}
