/** People: signing up and in, passwords, and what is theirs. */
import {
  AppError,
  type ChangePasswordRequest,
  type SignInRequest,
  type SignUpRequest,
} from '@coppice/contract';
import { newId } from '../../lib/new-id.ts';
import type { Database } from '../db/database.ts';
import type { Invitations } from './invitations.ts';
import type { Organizations } from './organizations.ts';
import { hashPassword, pretendToVerify, verifyPassword } from './password-hash.ts';
import type { SignInLimits } from './sign-in-limits.ts';

/** Who may make an account: whoever is invited, or anybody. */
export type SignUpMode = 'invited' | 'open';

export interface PeopleParts {
  db: Database;
  signUp: SignUpMode;
  limits: SignInLimits;
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

  /** The id of the new person, who belongs to an organization already. */
  async signUp(request: SignUpRequest, clientAddress: string): Promise<string> {
    this.#assertMaySignUp(request);
    assertNotEmail(request.password, request.email, 'password');
    this.#parts.limits.takeSignUp(clientAddress);
    const { db, organizations, invitations } = this.#parts;
    const { invitation, organization } = request;
    // Before the work of a hash, and with it once more.
    if (invitation !== undefined) await invitations.assertOpen(db, invitation, request.email);
    const passwordHash = await hashPassword(request.password);
    return db.transaction().execute(async (transaction) => {
      const userId = await insertUser(transaction, { ...request, passwordHash });
      if (invitation !== undefined)
        await invitations.acceptIn(transaction, invitation, { userId, email: request.email });
      else if (organization !== undefined) await organizations.insertOwned(transaction, organization, userId);
      return userId;
    });
  }

  /** The id of the person; `unauthorized` says no more than that one of the two is wrong, and takes as long. */
  async signIn({ email, password }: SignInRequest, clientAddress: string): Promise<string> {
    const { db, limits } = this.#parts;
    const attempt = limits.takeSignIn(email.toLowerCase(), clientAddress);
    const user = await findUser(db, 'email', email.toLowerCase());
    if (user === undefined) await pretendToVerify(password);
    if (user === undefined || !(await this.#isRight(user, password)))
      throw new AppError('unauthorized', 'the e-mail address or the password is wrong');
    attempt.giveBack();
    return user.id;
  }

  async changePassword(userId: string, request: ChangePasswordRequest, clientAddress: string): Promise<void> {
    const { db, limits } = this.#parts;
    const user = await findUser(db, 'id', userId);
    if (user === undefined) throw new AppError('unauthorized', 'nobody is signed in');
    assertNotEmail(request.new_password, user.email, 'new_password');
    const attempt = limits.takeSignIn(user.email, clientAddress);
    if (!(await this.#isRight(user, request.current_password)))
      throw new AppError('invalid_request', 'current_password: is wrong');
    attempt.giveBack();
    await setPassword(db, userId, await hashPassword(request.new_password));
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
        'invitation: is required; an owner of an organization can make one, or the operator allow sign-up without',
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
