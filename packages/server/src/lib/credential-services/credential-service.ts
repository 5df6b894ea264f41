/**
 * A service to whose requests the host adds a secret: its address, how it takes the secret, and the variables that a
 * guest's clients read. Each service is a row of data, so an operator can add services without code. The built-in rows
 * pass the same schema.
 */
import { decodeSegment, isDotSegment, SERVICE_NAME } from '@coppice/contract';
import { z } from 'zod';

const MAX_LIST = 16;
const MAX_HEADER_VALUE_BYTES = 1024;
const MAX_PORT = 65_535;
const HOST_LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const HOST = new RegExp(String.raw`^(?=.{1,253}$)(?:${HOST_LABEL}\.)+(?!\d+$)${HOST_LABEL}$`, 'u');
const BASE_PATH = /^(?:\/[A-Za-z0-9._~-]+)*$/u;
const MAX_BASE_PATH_BYTES = 128;
/** Variables with which a row could change the behaviour of a shell or a loader in the guest. */
const TAKEN_VARIABLE =
  /^(?:PATH|HOME|SHELL|USER|LOGNAME|PWD|TERM|IFS|ENV|BASH_ENV|PS4|PROMPT_COMMAND|NODE_OPTIONS|PYTHONPATH|PYTHONSTARTUP|LD_.*|GIT_.*|.*_PROXY)$/u;
/** Headers of the connection, or set by the proxy: no row may set them. */
const TAKEN_HEADER =
  /^(?:host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|keep-alive|cookie|proxy-.*|sec-websocket-.*)$/u;

const HeaderName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,63}$/u, { error: 'must be a header name in lower case' })
  .refine((name) => !TAKEN_HEADER.test(name), { error: 'is a header that the proxy sets itself' });

const HeaderValue = z
  .string()
  .max(MAX_HEADER_VALUE_BYTES)
  .regex(/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/u, { error: 'must be printable ASCII' });

const Headers = z
  .record(HeaderName, HeaderValue)
  .refine((headers) => Object.keys(headers).length <= MAX_LIST, {
    error: `the number of entries must be at most ${MAX_LIST}`,
  });

const VariableName = z
  .string()
  .regex(/^[A-Z][A-Z0-9_]{0,63}$/u, { error: 'must be the name of a variable: A–Z, 0–9, "_"' })
  .refine((name) => !TAKEN_VARIABLE.test(name), {
    error: 'must not be a variable that shells or loaders use',
  });

/** How the proxy puts the secret into a request. */
const Authentication = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('header'),
    header: HeaderName,
    prefix: z
      .string()
      .regex(/^(?:[A-Za-z0-9-]{1,32} )?$/u, { error: 'must be empty or a word and a space' })
      .default(''),
  }),
  z.strictObject({
    kind: z.literal('basic'),
    username: z.string().regex(/^[\x21-\x39\x3b-\x7e]{1,64}$/u, {
      error: 'must be 1–64 printable ASCII characters without spaces and ":"',
    }),
  }),
]);

export const CredentialService = z.strictObject({
  name: z.string().regex(SERVICE_NAME, { error: 'must be 1–24 of a–z, 0–9, "-"' }),
  host: z.string().regex(HOST, { error: 'must be a DNS name in lower case, without port and path' }),
  port: z.int().min(1).max(MAX_PORT).default(443),
  /** Prefix of every path at the service. A guest may write or omit it. */
  base_path: z
    .string()
    .max(MAX_BASE_PATH_BYTES)
    .regex(BASE_PATH, { error: 'must be empty or like "/v1"' })
    .refine((path) => path.split('/').every((part) => !isDotSegment(decodeSegment(part) ?? '..')), {
      error: 'must have no dot segments',
    })
    .default(''),
  authentication: Authentication,
  /** Headers that the proxy adds if the guest does not send them. */
  default_headers: Headers.default({}),
  /** Headers that the proxy always sets, replacing those of the guest. */
  fixed_headers: Headers.default({}),
  /** Headers that the proxy removes, in addition to those that carry secrets for many services. */
  dropped_headers: z.array(HeaderName).max(MAX_LIST).default([]),
  /** Query parameters that the proxy removes: decoded names in lower case. */
  dropped_parameters: z
    .array(
      z.string().regex(/^[\x21-\x40\x5b-\x7e]{1,64}$/u, { error: 'must be printable ASCII in lower case' }),
    )
    .max(MAX_LIST)
    .default([]),
  web_socket: z.boolean().default(false),
  /** Prefixes of WebSocket subprotocols that carry a secret; the proxy removes them. */
  dropped_protocol_prefixes: z
    .array(z.string().regex(/^[\x21\x23-\x2b\x2d-\x7e]{1,64}$/u))
    .max(MAX_LIST)
    .default([]),
  /** In addition to `<SERVICE>_API_KEY`. */
  key_variables: z.array(VariableName).max(MAX_LIST).default([]),
  /** In addition to `<SERVICE>_BASE_URL`. */
  base_url_variables: z.array(VariableName).max(MAX_LIST).default([]),
  other_variables: z
    .record(VariableName, HeaderValue)
    .refine((all) => Object.keys(all).length <= MAX_LIST, {
      error: `the number of entries must be at most ${MAX_LIST}`,
    })
    .default({}),
  /** Prefix of placeholders, for clients that check the form of their key. */
  placeholder_prefix: z
    .string()
    .regex(/^[A-Za-z0-9_-]{0,32}$/u)
    .default(''),
});
export type CredentialService = z.infer<typeof CredentialService>;

/** Returns `<SERVICE>` as it appears in variable names. */
function variablePrefix(service: string): string {
  return service.toUpperCase().replaceAll('-', '_');
}

export function listKeyVariables({ name, key_variables }: CredentialService): string[] {
  return [...new Set([`${variablePrefix(name)}_API_KEY`, ...key_variables])];
}

export function listBaseUrlVariables({ name, base_url_variables }: CredentialService): string[] {
  return [...new Set([`${variablePrefix(name)}_BASE_URL`, ...base_url_variables])];
}

export function listVariables(service: CredentialService): string[] {
  return [
    ...listKeyVariables(service),
    ...listBaseUrlVariables(service),
    ...Object.keys(service.other_variables),
  ];
}
