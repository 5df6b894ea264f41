/**
 * Secrets at rest, sealed with AES-256-GCM under the master key of this service:
 *
 *     version (1) │ key id (8) │ nonce (12) │ ciphertext │ tag (16)        sizes in bytes
 *
 * The tag also covers version, key id and whose secret it is for what: a row that is copied to another organization,
 * name or purpose does not open. A nonce is 96 random bits; at the limits of what is stored here none comes twice.
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { Secret } from '../../lib/secret.ts';

/** Whose secret it is, and what for. */
export interface SecretContext {
  organizationId: string;
  /** Kind of secret, for example `registry password`. */
  purpose: string;
  /** Which one of that kind, for example the registry. */
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
  readonly #key: Buffer;
  readonly #header: Buffer;

  /** `key` has {@link MASTER_KEY_BYTES}. */
  constructor(key: Buffer) {
    if (key.length !== MASTER_KEY_BYTES) throw new RangeError(`a master key of ${key.length} bytes`);
    this.#key = key;
    this.#header = Buffer.concat([Buffer.of(VERSION), identifyKey(key)]);
  }

  seal(secret: Secret, context: SecretContext): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(this.#bind(context));
    const sealed = Buffer.concat([cipher.update(secret.reveal(), 'utf8'), cipher.final()]);
    return Buffer.concat([this.#header, nonce, sealed, cipher.getAuthTag()]);
  }

  /** Throws AppError `secret_unreadable`, which says no more than what is to be done. */
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
    if (!envelope.subarray(0, HEADER_BYTES).equals(this.#header)) {
      const keyId = envelope.subarray(1, HEADER_BYTES).toString('hex');
      throw new Error(
        `sealed as version ${envelope[0]} with key ${keyId}, this one is ${this.#header.toString('hex', 1)}`,
      );
    }
    const nonce = envelope.subarray(HEADER_BYTES, HEADER_BYTES + NONCE_BYTES);
    const decipher = createDecipheriv(ALGORITHM, this.#key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(this.#bind(context));
    decipher.setAuthTag(envelope.subarray(-TAG_BYTES));
    const sealed = envelope.subarray(HEADER_BYTES + NONCE_BYTES, -TAG_BYTES);
    return new Secret(Buffer.concat([decipher.update(sealed), decipher.final()]).toString('utf8'));
  }

  /** JSON, so that no two contexts are one text. */
  #bind({ organizationId, purpose, name }: SecretContext): Buffer {
    return Buffer.concat([this.#header, Buffer.from(JSON.stringify([organizationId, purpose, name]))]);
  }
}

/** Tells keys apart without telling anything of them. */
function identifyKey(key: Buffer): Buffer {
  return createHash('sha256').update('coppice-key-id\0').update(key).digest().subarray(0, KEY_ID_BYTES);
}
