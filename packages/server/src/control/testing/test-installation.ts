/** Keys and certificates of an installation for tests, without a database. */
import { Authority } from '../authority/authority.ts';
import { ControlIdentity } from '../authority/control-identity.ts';
import { newId } from '../../lib/new-id.ts';
import type { Credentials } from '../../lib/tls/control-role.ts';
import { exportKey, issueCertificate, makeKeyPair } from '../../lib/tls/issue-certificate.ts';

const DAY_MS = 86_400_000;
const NAME = 'Coppice installation';

export class TestInstallation {
  readonly authority: Authority;
  readonly #key = makeKeyPair();

  constructor() {
    const { publicKey, privateKey } = this.#key;
    const request = { commonName: NAME, publicKey, ...during(-1, 10), isAuthority: true };
    this.authority = new Authority(
      issueCertificate(request, { commonName: NAME, key: privateKey }),
      privateKey,
    );
  }

  issueControl(): ControlIdentity {
    return new ControlIdentity(this.authority, newId('ctl'));
  }

  /** Issues a certificate that a real authority would not: for another role, or not for now. */
  issueOther({ uri, from = -1, to = 1 }: { uri?: string; from?: number; to?: number }): Credentials {
    const { publicKey, privateKey } = makeKeyPair();
    const request = { commonName: 'x', publicKey, ...during(from, to), ...(uri !== undefined && { uri }) };
    const cert = issueCertificate(request, { commonName: NAME, key: this.#key.privateKey });
    return { cert, key: exportKey(privateKey), ca: this.authority.certificate };
  }
}

/** Returns the dates so many days from now. */
function during(from: number, to: number): { validFrom: Date; validTo: Date } {
  const now = Date.now();
  return { validFrom: new Date(now + from * DAY_MS), validTo: new Date(now + to * DAY_MS) };
}
