/**
 * Builds the only upgrade that the proxy forwards, WebSocket (RFC 6455). Other upgrades, such as the HTTP/2 offers of
 * some clients, are ignored, as RFC 9110, 7.8 permits: an accepted one would bypass the rules.
 */
import type { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { listValues, type Field } from './outbound-headers.ts';
import { accept, refuse, type Checked } from './refusal.ts';

/** 16 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/u;
const PROTOCOL = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/u;
const MAX_PROTOCOLS = 16;

export function wantsWebSocket(rawHeaders: readonly string[]): boolean {
  return listValues(rawHeaders, 'upgrade').some((value) => /websocket/iu.test(value));
}

/** Returns the fields to add for the upgrade, or none for a plain request. */
export function buildUpgrade(request: {
  method: string;
  rawHeaders: readonly string[];
  service: CredentialService;
}): Checked<Field[]> {
  const { method, rawHeaders, service } = request;
  if (!wantsWebSocket(rawHeaders)) return accept([]);
  const upgrades = listValues(rawHeaders, 'upgrade');
  const [key, ...moreKeys] = listValues(rawHeaders, 'sec-websocket-key');
  const versions = listValues(rawHeaders, 'sec-websocket-version');
  const isWellFormed =
    service.web_socket &&
    method === 'GET' &&
    upgrades.length === 1 &&
    upgrades[0]?.trim().toLowerCase() === 'websocket' &&
    listValues(rawHeaders, 'connection').some((value) => /(?:^|,)\s*upgrade\s*(?:,|$)/iu.test(value)) &&
    versions.length === 1 &&
    versions[0]?.trim() === '13' &&
    moreKeys.length === 0;
  if (!isWellFormed || key === undefined || !KEY.test(key.trim())) return refuse('upgrade');
  const protocols = keepProtocols(rawHeaders, service.dropped_protocol_prefixes);
  if (!protocols.ok) return protocols;
  return accept([
    ['connection', 'Upgrade'] satisfies Field,
    ['upgrade', 'websocket'] satisfies Field,
    ['sec-websocket-version', '13'] satisfies Field,
    ['sec-websocket-key', key.trim()] satisfies Field,
    ...listValues(rawHeaders, 'sec-websocket-extensions').map((value): Field => [
      'sec-websocket-extensions',
      value,
    ]),
    ...protocols.value,
  ]);
}

/** Removes subprotocols that carry a key: clients in browsers cannot set headers and put their key there. */
function keepProtocols(rawHeaders: readonly string[], dropped: readonly string[]): Checked<Field[]> {
  const offered = listValues(rawHeaders, 'sec-websocket-protocol').flatMap((value) => value.split(','));
  const protocols = offered.map((protocol) => protocol.trim());
  if (protocols.length > MAX_PROTOCOLS || !protocols.every((protocol) => PROTOCOL.test(protocol)))
    return refuse('upgrade');
  const kept = protocols.filter(
    (protocol) => !dropped.some((prefix) => protocol.toLowerCase().startsWith(prefix.toLowerCase())),
  );
  return accept(kept.length === 0 ? [] : [['sec-websocket-protocol', kept.join(', ')] satisfies Field]);
}
