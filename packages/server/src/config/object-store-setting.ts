/**
 * The setting of the object store: `directory`, or an S3 location such as
 * `s3://bucket/prefix?endpoint=https://s3.example.com&region=eu`. It has no place for credentials, and errors do not
 * repeat the value, because someone may have put them there.
 */
import { BlockList, isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { isObjectKey } from '../lib/objects/object-store.ts';
import type { ObjectStoreConfig, S3Location } from '../lib/objects/object-store-config.ts';

const FORM = 's3://bucket/prefix?endpoint=https://host&region=name, or directory';
const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/u;
const REGION = /^[a-z0-9-]{1,40}$/u;
/** Of servers that have no regions. */
const USUAL_REGION = 'us-east-1';
/** With the longest key it fits into the 1024 bytes of S3. */
const MAX_PREFIX_LENGTH = 100;
const PARAMETERS = new Set(['endpoint', 'region', 'path_style', 'ca', 'plain_http']);
const NO_CREDENTIALS =
  'must not contain credentials; give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in a file';

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/** The value is invalid; the message continues the name of the setting. */
class InvalidSetting extends Error {}

export const ObjectStoreSetting = z.string().transform((text, context): ObjectStoreConfig => {
  try {
    return text === 'directory' ? { kind: 'directory' } : { kind: 's3', ...parseLocation(text) };
  } catch (error) {
    if (!(error instanceof InvalidSetting)) throw error;
    context.addIssue({ code: 'custom', message: error.message });
    return z.NEVER;
  }
});

/** Returns the setting of a store, for a program with a parser of its own. */
export function formatObjectStore(config: ObjectStoreConfig): string {
  if (config.kind === 'directory') return config.kind;
  const { bucket, prefix, endpoint, region, isPathStyle, caPath } = config;
  const url = new URL(`s3://${bucket}/${prefix}`);
  url.searchParams.set('region', region);
  url.searchParams.set('path_style', String(isPathStyle));
  if (endpoint !== undefined) url.searchParams.set('endpoint', endpoint);
  if (endpoint?.startsWith('http:') === true) url.searchParams.set('plain_http', 'true');
  if (caPath !== undefined) url.searchParams.set('ca', caPath);
  return url.href;
}

function parseLocation(text: string): S3Location {
  demand(text.startsWith('s3://') && URL.canParse(text), `must be of the form ${FORM}`);
  const url = new URL(text);
  demand(url.username === '' && url.password === '', NO_CREDENTIALS);
  demand(BUCKET.test(url.hostname) && url.port === '' && url.hash === '', `must be of the form ${FORM}`);
  const parameters = readParameters(url.searchParams);
  const endpoint = parameters.get('endpoint');
  const region = parameters.get('region') ?? (endpoint === undefined ? '' : USUAL_REGION);
  demand(region !== '', 'must have region=…, or endpoint=… for another server than that of AWS');
  demand(REGION.test(region), 'region= must be a name such as eu-central-1');
  const caPath = parameters.get('ca');
  demand(caPath === undefined || isAbsolute(caPath), 'ca= must be an absolute path of a PEM file');
  const allowsPlainHttp = readFlag(parameters, 'plain_http', false);
  return {
    bucket: url.hostname,
    prefix: parsePrefix(url.pathname),
    endpoint: endpoint === undefined ? undefined : parseEndpoint(endpoint, allowsPlainHttp),
    region,
    isPathStyle: readFlag(parameters, 'path_style', endpoint !== undefined),
    caPath,
  };
}

function readParameters(query: URLSearchParams): Map<string, string> {
  const parameters = new Map<string, string>();
  for (const [name, value] of query) {
    // An unknown name may be a secret that contains "&".
    demand(PARAMETERS.has(name), `has an unknown parameter; known are ${[...PARAMETERS].join(', ')}`);
    demand(!parameters.has(name), `has ${name}= twice`);
    parameters.set(name, value);
  }
  return parameters;
}

function readFlag(parameters: ReadonlyMap<string, string>, name: string, standard: boolean): boolean {
  const value = parameters.get(name) ?? String(standard);
  demand(value === 'true' || value === 'false', `${name}= must be true or false`);
  return value === 'true';
}

function parsePrefix(path: string): string {
  const prefix = path.replace(/^\//u, '').replace(/\/$/u, '');
  demand(
    prefix === '' || (isObjectKey(prefix) && prefix.length <= MAX_PREFIX_LENGTH),
    `must have a prefix of at most ${MAX_PREFIX_LENGTH} of A–Z, a–z, 0–9, ".", "_", "-" and "/"`,
  );
  return prefix;
}

function parseEndpoint(text: string, allowsPlainHttp: boolean): string {
  const form = 'endpoint= must be of the form https://host or https://host:port';
  demand(/^https?:\/\//u.test(text) && URL.canParse(text), form);
  const url = new URL(text);
  demand(url.username === '' && url.password === '', NO_CREDENTIALS);
  demand(text.replace(/\/$/u, '').toLowerCase() === url.origin, form);
  demand(
    url.protocol === 'https:' || allowsPlainHttp || isLoopback(url.hostname),
    'endpoint= is plain HTTP, by which anyone on the path could read the objects; use https://, or add plain_http=true',
  );
  return url.origin;
}

function isLoopback(host: string): boolean {
  const address = host.replace(/^\[(.*)\]$/u, '$1');
  if (isIP(address) === 0) return host === 'localhost';
  return LOOPBACK.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

function demand(holds: boolean, message: string): asserts holds {
  if (!holds) throw new InvalidSetting(message);
}
