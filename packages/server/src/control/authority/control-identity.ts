import type { KeyObject } from 'node:crypto';
import type { Credentials } from '../../lib/tls/control-role.ts';
import { exportKey, makeKeyPair } from '../../lib/tls/issue-certificate.ts';
import type { Authority } from './authority.ts';

const VALID_MS = 30 * 86_400_000;

/**
 * The key with which this control proves to runners and other controls that it belongs to the installation. It is only in
 * memory and new at every start. Its certificate is short-lived, and renewed after half of its life.
 */
export class ControlIdentity {
  readonly #authority: Authority;
  readonly #controlId: string;
  readonly #publicKey: KeyObject;
  readonly #key: string;
  #issued: { cert: string; at: number } | undefined;

  constructor(authority: Authority, controlId: string) {
    this.#authority = authority;
    this.#controlId = controlId;
    const { publicKey, privateKey } = makeKeyPair();
    this.#publicKey = publicKey;
    this.#key = exportKey(privateKey);
  }

  /** Returns what the next connection uses. */
  get credentials(): Credentials {
    const now = Date.now();
    const issued = this.#issued;
    // A clock that was set back would make the present certificate outlive its half.
    const isFresh = issued !== undefined && now >= issued.at && now < issued.at + VALID_MS / 2;
    if (!isFresh)
      this.#issued = {
        cert: this.#authority.issueControl(this.#controlId, this.#publicKey, VALID_MS),
        at: now,
      };
    const cert = this.#issued?.cert ?? '';
    return { cert, key: this.#key, ca: this.#authority.certificate };
  }

  /** The own certificate with that of the authority, as a server presents them to a runner that does not know it yet. */
  get chain(): Credentials {
    const { cert, key, ca } = this.credentials;
    return { cert: cert + ca, key, ca };
  }
}
