/**
 * Secrets at rest, sealed with AES-256-GCM under a master key of this service:
 *
 *     version (1) │ key id (8) │ nonce (12) │ ciphertext │ tag (16)        sizes in bytes
 *
 * The tag also covers version, key id and the context of the secret: a row that is copied to another organization, name
 * or purpose does not open. A nonce has 96 random bits; within the limits on stored secrets none repeats.
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { Secret } from '../../lib/secret.ts';

/** The organization and the purpose of a secret. */
export interface SecretContext {
  organizationId: string;
  /** Kind of secret, for example `registry password`. */
  purpose: string;
  /** Name of the secret within that kind, for example the registry. */
  name: string;
}

const ALGORITHM = 'aes-256-gcm';
const VERSION = 1;
const KEY_ID_BYTES = 8;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const HEADER_BYTES = 1 + KEY_ID_BYTES;
export const MASTER_KEY_BYTES = 32;

export class SecretBox {
  readonly #key: Key;
  readonly #keys: readonly Key[];

  /** `current` seals; it and the older ones open. Each has {@link MASTER_KEY_BYTES}. */
  constructor(current: Buffer, older: readonly Buffer[] = []) {
    this.#key = buildKey(current);
    this.#keys = [this.#key, ...older.map(buildKey)];
  }

  /** Returns whether an envelope was sealed with another key than the current one. */
  isOutdated(envelope: Buffer): boolean {
    return !envelope.subarray(0, HEADER_BYTES).equals(this.#key.header);
  }

  seal(secret: Secret, context: SecretContext): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#key.bytes, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(bind(this.#key, context));
    const sealed = Buffer.concat([cipher.update(secret.reveal(), 'utf8'), cipher.final()]);
    return Buffer.concat([this.#key.header, nonce, sealed, cipher.getAuthTag()]);
  }

  /** Opens an envelope. Throws `secret_unreadable`, whose message names only the remedy. */
  open(envelope: Buffer, context: SecretContext): Secret {
    try {
      return this.#open(envelope, context);
    } catch (error) {
      throw new AppError(
        'secret_unreadable',
        `the stored ${context.purpose} of ${context.name} cannot be read with this service's master key; store it again`,
        { cause: error },
      );
    }
  }

  #open(envelope: Buffer, context: SecretContext): Secret {
    const key = this.#keys.find(({ header }) => envelope.subarray(0, HEADER_BYTES).equals(header));
    if (key === undefined) {
      const keyId = envelope.subarray(1, HEADER_BYTES).toString('hex');
      throw new Error(
        `sealed as version ${envelope[0]} with key ${keyId}, this one is ${this.#key.header.toString('hex', 1)}`,
      );
    }
    const nonce = envelope.subarray(HEADER_BYTES, HEADER_BYTES + NONCE_BYTES);
    const decipher = createDecipheriv(ALGORITHM, key.bytes, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(bind(key, context));
    decipher.setAuthTag(envelope.subarray(-TAG_BYTES));
    const sealed = envelope.subarray(HEADER_BYTES + NONCE_BYTES, -TAG_BYTES);
    return new Secret(Buffer.concat([decipher.update(sealed), decipher.final()]).toString('utf8'));
  }
}

/** Builds the authenticated data. It is JSON, so that no two contexts have the same text. */
function bind({ header }: Key, { organizationId, purpose, name }: SecretContext): Buffer {
  return Buffer.concat([header, Buffer.from(JSON.stringify([organizationId, purpose, name]))]);
}

interface Key {
  bytes: Buffer;
  header: Buffer;
}

function buildKey(bytes: Buffer): Key {
  if (bytes.length !== MASTER_KEY_BYTES) throw new RangeError(`a master key of ${bytes.length} bytes`);
  return { bytes, header: Buffer.concat([Buffer.of(VERSION), identifyKey(bytes)]) };
}

/** Returns an id that distinguishes keys and discloses nothing about them. */
function identifyKey(key: Buffer): Buffer {
  return createHash('sha256').update('coppice-key-id\0').update(key).digest().subarray(0, KEY_ID_BYTES);
}
