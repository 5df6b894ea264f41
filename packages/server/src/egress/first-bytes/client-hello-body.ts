import { ByteReader } from './byte-reader.ts';
import type { ClientHelloResult } from './client-hello.ts';
import { parseHostName } from '../names/host-name.ts';

const MAJOR_VERSION = 3;
const RANDOM_BYTES = 32;
const MAX_SESSION_ID_BYTES = 32;

const SERVER_NAME = 0;
const ENCRYPTED_CLIENT_HELLO = 0xfe_0d;
/** The earlier draft of encrypted ClientHello. */
const ENCRYPTED_SERVER_NAME = 0xff_ce;
const HOST_NAME = 0;

/** Parses the body of a complete ClientHello. Returns undefined if its structure is invalid. */
export function parseClientHello(body: Buffer): ClientHelloResult | undefined {
  const reader = new ByteReader(body);
  if (!skipToExtensions(reader)) return undefined;
  if (reader.isAtEnd) return { kind: 'tls', name: undefined, encryptedName: false };
  const list = reader.vector(2);
  const extensions = list === undefined || !reader.isAtEnd ? undefined : readExtensions(list);
  if (extensions === undefined) return undefined;
  const encryptedName = extensions.has(ENCRYPTED_CLIENT_HELLO) || extensions.has(ENCRYPTED_SERVER_NAME);
  const serverName = extensions.get(SERVER_NAME);
  if (serverName === undefined) return { kind: 'tls', name: undefined, encryptedName };
  const name = readServerName(serverName);
  return name === undefined
    ? { kind: 'malformed', fault: 'server-name' }
    : { kind: 'tls', name, encryptedName };
}

function skipToExtensions(reader: ByteReader): boolean {
  const major = reader.uint(1);
  if (major !== MAJOR_VERSION || reader.take(1 + RANDOM_BYTES) === undefined) return false;
  const sessionId = reader.vector(1);
  if (sessionId === undefined || sessionId.length > MAX_SESSION_ID_BYTES) return false;
  const cipherSuites = reader.vector(2);
  if (cipherSuites === undefined || cipherSuites.length < 2 || cipherSuites.length % 2 !== 0) return false;
  const compressionMethods = reader.vector(1);
  return compressionMethods !== undefined && compressionMethods.length > 0;
}

function readExtensions(list: Buffer): Map<number, Buffer> | undefined {
  const reader = new ByteReader(list);
  const extensions = new Map<number, Buffer>();
  while (!reader.isAtEnd) {
    const type = reader.uint(2);
    const data = reader.vector(2);
    if (type === undefined || data === undefined || extensions.has(type)) return undefined;
    extensions.set(type, data);
  }
  return extensions;
}

/** Reads the server name. The list must have exactly one entry, of type host_name (the only defined type). */
function readServerName(extension: Buffer): string | undefined {
  const reader = new ByteReader(extension);
  const list = reader.vector(2);
  if (list === undefined || !reader.isAtEnd) return undefined;
  const entry = new ByteReader(list);
  const type = entry.uint(1);
  const name = entry.vector(2);
  if (type !== HOST_NAME || name === undefined || !entry.isAtEnd) return undefined;
  return parseHostName(name.toString('latin1'));
}
