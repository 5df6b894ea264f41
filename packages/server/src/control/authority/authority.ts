/**
 * The authority of the installation: a certificate and a sealed private key in SQL, made by the first control that needs it.
 * It issues certificates to controls, and to nothing else; runners accept every control that has one. Of controls that make
 * it at once, the first row counts.
 */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { AppError } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import { Secret } from '../../lib/secret.ts';
import { buildControlUri, fingerprintOf } from '../../lib/tls/control-role.ts';
import { exportKey, issueCertificate, makeKeyPair } from '../../lib/tls/issue-certificate.ts';

const ID = 'installation';
const COMMON_NAME = 'Coppice installation';
const DAY_MS = 86_400_000;
/** Clocks of machines may differ by this. */
const SLACK_MS = DAY_MS;
const VALID_MS = 25 * 365 * DAY_MS;

export class Authority {
  /** PEM. */
  readonly certificate: string;
  /** SHA-256 of the certificate: tokens carry it, so that a joining runner knows the installation. */
  readonly fingerprint: string;
  readonly #key: KeyObject;

  constructor(certificate: string, key: KeyObject) {
    this.certificate = certificate;
    this.fingerprint = fingerprintOf(certificate);
    this.#key = key;
  }

  /** Returns the certificate of a control in PEM. */
  issueControl(controlId: string, publicKey: KeyObject, validMs: number): string {
    const now = Date.now();
    const request = {
      commonName: controlId,
      publicKey,
      validFrom: new Date(now - SLACK_MS),
      validTo: new Date(now + validMs),
      uri: buildControlUri(controlId),
    };
    return issueCertificate(request, { commonName: COMMON_NAME, key: this.#key });
  }
}

/** The context in which the private key is sealed. It belongs to no organization. */
export function bindAuthorityKey(): SecretContext {
  return { organizationId: '', purpose: 'key of the authority', name: ID };
}

/** Returns the authority, which is made if there is none. Throws `secret_unreadable` under another master key. */
export async function ensureAuthority(db: Database, box: SecretBox): Promise<Authority> {
  const row = (await findRow(db)) ?? (await makeRow(db, box));
  let key: Secret;
  try {
    key = box.open(row.sealed_key, bindAuthorityKey());
  } catch (error) {
    throw new AppError(
      'secret_unreadable',
      'the key of the authority in the database does not open with the master key of this control: give every control of ' +
        'an installation the same master.key',
      { cause: error },
    );
  }
  return new Authority(row.certificate, createPrivateKey(key.reveal()));
}

interface AuthorityRow {
  certificate: string;
  sealed_key: Buffer;
}

function findRow(db: Database): Promise<AuthorityRow | undefined> {
  const query = db.selectFrom('authorities').select(['certificate', 'sealed_key']).where('id', '=', ID);
  return query.executeTakeFirst();
}

/** Inserts a new authority unless another control has, and returns the one that is there. */
async function makeRow(db: Database, box: SecretBox): Promise<AuthorityRow> {
  const { publicKey, privateKey } = makeKeyPair();
  const now = Date.now();
  const request = {
    commonName: COMMON_NAME,
    publicKey,
    validFrom: new Date(now - SLACK_MS),
    validTo: new Date(now + VALID_MS),
    isAuthority: true,
  };
  const certificate = issueCertificate(request, { commonName: COMMON_NAME, key: privateKey });
  const sealed_key = box.seal(new Secret(exportKey(privateKey)), bindAuthorityKey());
  await db
    .insertInto('authorities')
    .values({ id: ID, certificate, sealed_key, created_at: DATABASE_NOW })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  const row = await findRow(db);
  if (row === undefined) throw new AppError('internal', 'the authority of the installation was deleted');
  return row;
}
