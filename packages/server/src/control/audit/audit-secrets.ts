/** Secrets that key audit logs: how they are made, opened, and kept open in memory. */
import { randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { newId } from '../../lib/new-id.ts';
import { Secret } from '../../lib/secret.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import { isUnreadable } from './write-errors.ts';

const SECRET_BYTES = 32;
/** Limit of opened secrets in memory. */
const MAX_CACHED = 10_000;

export interface AuditSecret {
  /** `ask…`; logs refer to it as their `audit_key_id`. */
  id: string;
  secret: Secret;
}

export interface AuditSecretInfo {
  id: string;
  /** Unix milliseconds. */
  createdAt: number;
}

/** Makes a secret whose text begins with `prefix`. */
export function newAuditSecret(prefix: string): AuditSecret {
  return {
    id: newId('ask'),
    secret: new Secret(`${prefix}${randomBytes(SECRET_BYTES).toString('base64url')}`),
  };
}

/** Returns the time of a new secret. The newest one has the latest time, even if the clock was set back. */
export function timeAfter(newestAt: number | undefined): number {
  return Math.max(Date.now(), (newestAt ?? 0) + 1);
}

/** Resolves with undefined if the secret was sealed with another master key. */
export async function ifReadable(opening: Promise<AuditSecret>): Promise<AuditSecret | undefined> {
  try {
    return await opening;
  } catch (error) {
    if (isUnreadable(error)) return undefined;
    throw error;
  }
}

/** Opened secrets by id, up to a limit. */
export class OpenedSecrets {
  readonly #box: SecretBox;
  /** The remedy for a lost master key, as the end of a sentence. */
  readonly #remedy: string;
  readonly #opened = new Map<string, Secret>();

  constructor(box: SecretBox, { remedy }: { remedy: string }) {
    this.#box = box;
    this.#remedy = remedy;
  }

  find(id: string): AuditSecret | undefined {
    const secret = this.#opened.get(id);
    return secret === undefined ? undefined : { id, secret };
  }

  /** Throws `secret_unreadable` without the master key that sealed it. */
  open(id: string, sealed: Buffer, context: SecretContext): AuditSecret {
    const secret = this.#unseal(sealed, context);
    if (this.#opened.size >= MAX_CACHED) this.#opened.clear();
    this.#opened.set(id, secret);
    return { id, secret };
  }

  #unseal(sealed: Buffer, context: SecretContext): Secret {
    try {
      return this.#box.open(sealed, context);
    } catch (cause) {
      throw new AppError(
        'secret_unreadable',
        `the ${context.purpose} ${context.name} was sealed with another master key: ${this.#remedy}`,
        { cause },
      );
    }
  }
}
