/** People: sign-up, sign-in and passwords. */
import {
  AppError,
  type AuditActor,
  type ChangePasswordRequest,
  type SignInRequest,
  type SignUpRequest,
} from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { Database } from '../../db/database.ts';
import type { Invitations } from './invitations.ts';
import type { Organizations } from './organizations.ts';
import type { FailedSignIns } from '../sign-in/failed-sign-ins.ts';
import { hashPassword, pretendToVerify, verifyPassword } from '../sign-in/password-hash.ts';
import type { SignInLimits } from '../sign-in/sign-in-limits.ts';

/** The people who may create an account: invited ones, or everyone. */
export type SignUpMode = 'invited' | 'open';

export interface PeopleParts {
  db: Database;
  signUp: SignUpMode;
  limits: SignInLimits;
  audit: OrganizationAudit;
  failures: FailedSignIns;
  organizations: Organizations;
  invitations: Invitations;
}

interface StoredUser {
  id: string;
  email: string;
  password_hash: string;
}

export class People {
  readonly #parts: PeopleParts;

  constructor(parts: PeopleParts) {
    this.#parts = parts;
  }

  /** Creates a person who is a member of an organization from the start, and returns the person's id. */
  async signUp(request: SignUpRequest, clientAddress: string): Promise<string> {
    this.#assertMaySignUp(request);
    assertNotEmail(request.password, request.email, 'password');
    this.#parts.limits.takeSignUp(clientAddress);
    const { db, organizations, invitations } = this.#parts;
    const { invitation, organization } = request;
    // Checked before the costly hash, and once more when it is accepted.
    if (invitation !== undefined) await invitations.assertOpen(db, invitation, request.email);
    const passwordHash = await hashPassword(request.password);
    return db.transaction().execute(async (transaction) => {
      const userId = await insertUser(transaction, { ...request, passwordHash });
      const invited = { userId, email: request.email, clientAddress };
      if (invitation !== undefined) await invitations.acceptIn(transaction, invitation, invited);
      else if (organization !== undefined)
        await organizations.insertOwned(transaction, organization, invited);
      return userId;
    });
  }

  /**
   * Returns the person's id. Throws `unauthorized` with the same message, after the same time, for an unknown address
   * and for a wrong password.
   */
  async signIn({ email, password }: SignInRequest, clientAddress: string): Promise<string> {
    const { db, limits, failures } = this.#parts;
    const attempt = limits.takeSignIn(email.toLowerCase(), clientAddress);
    const user = await findUser(db, 'email', email.toLowerCase());
    if (user === undefined) await pretendToVerify(password);
    if (user === undefined || !(await this.#isRight(user, password))) {
      if (user !== undefined) failures.note(user.id, clientAddress);
      throw new AppError('unauthorized', 'the e-mail address or the password is wrong');
    }
    attempt.giveBack();
    failures.settle(user.id);
    return user.id;
  }

  async changePassword(userId: string, request: ChangePasswordRequest, clientAddress: string): Promise<void> {
    const { db, limits, audit, failures } = this.#parts;
    const user = await findUser(db, 'id', userId);
    if (user === undefined) throw new AppError('unauthorized', 'not signed in');
    assertNotEmail(request.new_password, user.email, 'new_password');
    const attempt = limits.takeSignIn(user.email, clientAddress);
    if (!(await this.#isRight(user, request.current_password))) {
      failures.note(userId, clientAddress);
      throw new AppError('invalid_request', 'current_password: is wrong');
    }
    attempt.giveBack();
    const passwordHash = await hashPassword(request.new_password);
    const by: AuditActor = { type: 'user', id: userId, address: clientAddress };
    await db.transaction().execute(async (transaction) => {
      await setPassword(transaction, userId, passwordHash);
      const notes = [{ event: 'password.changed' as const, data: { user_id: userId } }];
      await audit.writeForMember(transaction, userId, { by, notes });
    });
  }

  async #isRight(user: StoredUser, password: string): Promise<boolean> {
    const { isRight, isOutdated } = await verifyPassword(password, user.password_hash);
    if (isRight && isOutdated) await setPassword(this.#parts.db, user.id, await hashPassword(password));
    return isRight;
  }

  #assertMaySignUp({ invitation, organization }: SignUpRequest): void {
    if (invitation !== undefined && organization !== undefined)
      throw new AppError(
        'conflicting_options',
        'organization: an invitation leads to one already; leave it out',
      );
    if (invitation !== undefined) return;
    if (this.#parts.signUp === 'invited')
      throw new AppError(
        'invalid_request',
        'invitation: is required; an owner of an organization can make one, or the operator can open sign-up',
      );
    if (organization === undefined)
      throw new AppError('invalid_request', 'organization: is required where no invitation is given');
  }
}

interface NewUser {
  email: string;
  name: string;
  passwordHash: string;
}

async function insertUser(db: Database, { email, name, passwordHash }: NewUser): Promise<string> {
  const id = newId('user');
  const made = await db
    .insertInto('users')
    .values({ id, email, name, password_hash: passwordHash, created_at: Date.now() })
    .onConflict((conflict) => conflict.column('email').doNothing())
    .executeTakeFirst();
  if (made.numInsertedOrUpdatedRows === 1n) return id;
  throw new AppError(
    'already_exists',
    'email: has an account already; sign in, and accept the invitation then',
  );
}

function findUser(db: Database, by: 'id' | 'email', value: string): Promise<StoredUser | undefined> {
  return db
    .selectFrom('users')
    .select(['id', 'email', 'password_hash'])
    .where(by, '=', value)
    .executeTakeFirst();
}

async function setPassword(db: Database, userId: string, passwordHash: string): Promise<void> {
  await db.updateTable('users').set({ password_hash: passwordHash }).where('id', '=', userId).execute();
}

function assertNotEmail(password: string, email: string, field: string): void {
  if (password.toLowerCase() === email)
    throw new AppError('invalid_request', `${field}: must not be the e-mail address`);
}
