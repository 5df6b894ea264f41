/**
 * Network policy of a sandbox, and the secrets that the host adds for it. A change is first put in force at the runner,
 * then committed with its audit entry, then answered:
 *
 *     PUT ─► runner: in force ─► SQL and audit log, together ─► answer
 *                 │ failed            │ failed
 *                 └───────────────────┴─► control sends the stored policy again (egress-keeper.ts), until it arrives
 *
 * So no caller gets an answer for a policy that is not in force. In the end the stored policy is in force, whichever
 * process dies in between. A hibernated sandbox has nothing at the runner: its resume carries the stored policy.
 */
import { AppError, UNRESTRICTED_POLICY, type NetworkPolicy } from '@coppice/contract';
import type { EgressCounters, VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import { buildCredentialsNote, buildPolicyNote, buildRotatedNote } from '../../egress/egress-audit.ts';
import type { Grant, OpenGrant } from '../../egress/grant.ts';
import type { Grants } from '../../egress/grants.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import { resolveMissing } from './missing-vm.ts';
import { isNotFound, type SandboxVm } from './sandbox-vm.ts';
import { enterRecordStep } from '../record/steps.ts';

export interface SandboxEgressParts {
  audit: AuditLog;
  grants: Grants;
  /** Called when the policy or secrets at the runner may differ from the stored ones. */
  onDoubt: () => void;
}

export class SandboxEgress {
  readonly #live: LiveSandbox;
  readonly #vm: SandboxVm;
  readonly #parts: SandboxEgressParts;

  constructor(live: LiveSandbox, vm: SandboxVm, parts: SandboxEgressParts) {
    this.#live = live;
    this.#vm = vm;
    this.#parts = parts;
  }

  get policy(): NetworkPolicy {
    return this.#live.row.network ?? UNRESTRICTED_POLICY;
  }

  setPolicy(policy: NetworkPolicy | null): Promise<void> {
    return this.#live.operate('set_egress', async () => {
      const stored = policy ?? UNRESTRICTED_POLICY;
      await this.#change(
        async () => {
          const { row } = this.#live;
          const grants = await this.#parts.grants.open(row);
          return this.#parts.grants.build({ ...row, network: policy }, grants);
        },
        () => this.#live.commit({ network: policy }, buildPolicyNote(stored)),
      );
    });
  }

  /** Replaces all grants by these. */
  setGrants(grants: readonly Grant[]): Promise<void> {
    return this.#live.operate('set_egress', async () => {
      const { row } = this.#live;
      const opened = await this.#parts.grants.open(row, grants);
      await this.#change(
        () => this.#parts.grants.build(row, opened),
        async () => {
          const isCurrent = await this.#parts.audit.commit(
            row.id,
            buildCredentialsNote(opened),
            (transaction) => this.#parts.grants.replace(transaction, row, opened),
          );
          if (!isCurrent) this.#parts.onDoubt();
        },
      );
    });
  }

  /** The policy or secrets at the runner may differ from the stored ones: control sends these again. */
  doubt(): void {
    this.#parts.onDoubt();
  }

  /** Sends the stored policy with these grants to the runner. Call only in the queue slot of an operation. */
  async send(grants: readonly OpenGrant[]): Promise<void> {
    await this.#vm.setEgress(this.#parts.grants.build(this.#live.row, grants));
  }

  /** Returns null while there is no VM, or while the runner cannot be reached. */
  async findCounters(): Promise<EgressCounters | null> {
    if (this.#live.row.status !== 'running') return null;
    try {
      return await this.#vm.getEgressCounters();
    } catch (error) {
      if (error instanceof AppError && (error.code === 'unavailable' || error.code === 'not_found'))
        return null;
      throw error;
    }
  }

  /**
   * Sends the stored policy and secrets to the runner. Returns false if it must be tried again, as the sandbox is busy.
   */
  async tellAgain(): Promise<boolean> {
    const { status, rollback_id } = this.#live.row;
    // A VM that is being replaced does not pass on a policy that it receives now.
    if (status === 'creating' || rollback_id !== null || this.#live.operations.current !== null) return false;
    return this.#live.operations.run(async () => {
      await this.#live.settle();
      const { row } = this.#live;
      if (row.status !== 'running') return true;
      const grants = await this.#parts.grants.open(row);
      await this.send(grants);
      await this.#recordVersions(grants);
      return true;
    }, false);
  }

  /**
   * Sends the grants to the runner before a copy is made, as the copy inherits what the runner has. Call only in the
   * queue slot of an operation.
   */
  async tellBeforeCopy(): Promise<void> {
    const grants = await this.#parts.grants.open(this.#live.row);
    if (grants.length === 0) return;
    await this.send(grants);
    await this.noteSent(grants);
  }

  /**
   * Records new versions of named secrets that the runner has received with these grants. Never rejects: control
   * repeats a failed record later. Call only in the queue slot of an operation.
   */
  async noteSent(grants: readonly OpenGrant[]): Promise<void> {
    await this.#recordVersions(grants).catch(() => this.#parts.onDoubt());
  }

  /**
   * Like {@link noteSent}, for a sandbox that was resumed with these grants. Sends new values of named secrets that were
   * stored meanwhile: until then, the sandbox did not count as running with an outdated one.
   */
  async noteResumed(sent: readonly OpenGrant[]): Promise<void> {
    await this.noteSent(sent);
    if (sent.every(({ named }) => named === null)) return;
    try {
      const grants = await this.#parts.grants.open(this.#live.row);
      const isOutdated = grants.some(({ named }, index) => named?.version !== sent[index]?.named?.version);
      if (!isOutdated) return;
      await this.send(grants);
      await this.#recordVersions(grants);
    } catch {
      this.#parts.onDoubt();
    }
  }

  async #recordVersions(sent: readonly OpenGrant[]): Promise<void> {
    const { row } = this.#live;
    const rotated = await this.#parts.grants.findRotated(row, sent);
    if (rotated.length === 0) return;
    await this.#parts.audit.commit(row.id, buildRotatedNote(rotated), (transaction) =>
      this.#parts.grants.storeVersions(transaction, row, rotated),
    );
  }

  /** Puts a change in force and commits it. Call only in the queue slot of an operation. */
  async #change(build: () => VmEgress | Promise<VmEgress>, commit: () => Promise<void>): Promise<void> {
    if (this.#live.row.status === 'running') await this.#tell(await build());
    await enterRecordStep('record.egress');
    try {
      await this.#live.inTurn(async () => {
        this.#live.require('set_egress');
        await commit();
      });
    } catch (error) {
      this.#parts.onDoubt();
      throw error;
    }
  }

  async #tell(egress: VmEgress): Promise<void> {
    try {
      await this.#vm.setEgress(egress);
    } catch (error) {
      if (isNotFound(error)) {
        await this.#live.inTurn(() => resolveMissing(this.#live, this.#vm));
        throw this.#live.row.status === 'running' ? error : this.#live.refusal('set_egress');
      }
      if (error instanceof AppError && error.code === 'invalid_request') throw error;
      this.#parts.onDoubt();
      throw new AppError(
        'unavailable',
        'the change could not be put in force; the previous settings still hold; try again',
        {
          cause: error,
        },
      );
    }
  }
}
