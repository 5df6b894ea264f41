/** Credit, if the operator grants any: sandboxes may start while it lasts. If credit is off, all may. */
import { AppError } from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { Database } from '../../db/database.ts';
import { momentOf, type Clock } from '../../time/clock.ts';
import { readAccounts, type BillingAccount } from '../consumption/billing-accounts.ts';
import { findCreditLeft, findSpentCents } from './credit-balance.ts';
import { grantWelcome } from './credit-store.ts';

export interface CreditParts {
  db: Database;
  clock: Clock;
  /** Credit that every organization gets at first, in cents; undefined if credit is off. */
  welcomeCents: number | undefined;
}

export interface Balance {
  account: BillingAccount;
  leftUnits: bigint;
  now: HostMoment;
}

export class Credit {
  readonly #parts: CreditParts;

  constructor(parts: CreditParts) {
    this.#parts = parts;
  }

  get welcomeCents(): number | undefined {
    return this.#parts.welcomeCents;
  }

  get isOn(): boolean {
    return this.#parts.welcomeCents !== undefined;
  }

  /** Throws `credit_exhausted` if no credit is left. Call before a create, a fork, a restore and a resume. */
  async require(organizationId: string): Promise<void> {
    if (!this.isOn) return;
    const [balance] = await this.readBalances([organizationId]);
    if (balance !== undefined && balance.leftUnits > 0n) return;
    throw new AppError(
      'credit_exhausted',
      "the organization's credit is used up: no sandbox can start, and running ones are hibernated; resume them when there is more credit",
    );
  }

  /** Returns the current balances, and first grants the welcome credit to organizations that had none yet. */
  async readBalances(organizationIds: readonly string[]): Promise<Balance[]> {
    const accounts = await this.#read(organizationIds);
    const unwelcomed = accounts.filter(({ account }) => !account.hasWelcome);
    if (!this.isOn || unwelcomed.length === 0) return accounts;
    for (const balance of unwelcomed) await this.#welcome(balance);
    return this.#read(organizationIds);
  }

  /** Takes the moment before it reads, so that no sandbox is billed beyond the time of the read. */
  async #read(organizationIds: readonly string[]): Promise<Balance[]> {
    const now = momentOf(this.#parts.clock);
    const accounts = await readAccounts(this.#parts.db, organizationIds);
    return accounts.map((account) => ({ account, leftUnits: findCreditLeft(account, now), now }));
  }

  async #welcome({ account, now }: Balance): Promise<void> {
    await grantWelcome(this.#parts.db, {
      organizationId: account.organizationId,
      cents: this.#parts.welcomeCents ?? 0,
      spentCents: findSpentCents(account, now),
    });
  }
}
