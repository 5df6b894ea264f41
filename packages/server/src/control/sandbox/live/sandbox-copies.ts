/** What is made of a sandbox while it runs: forks and snapshots. */
import type { SandboxOperation, SandboxRequest } from '@coppice/contract';
import type { CaptureInfo, ForkedVms } from '../../../lib/protocol/runner-protocol.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import type { SandboxEgress } from './sandbox-egress.ts';
import { resolveMissing } from './missing-vm.ts';
import { captureGone, isNotFound, type SandboxVm } from './sandbox-vm.ts';

export type AskForChildren = (ids: string[]) => Promise<ForkedVms>;
export type AskForCapture = (id: string) => Promise<CaptureInfo>;

export class SandboxCopies {
  readonly #live: LiveSandbox;
  readonly #vm: SandboxVm;
  readonly #egress: SandboxEgress;

  constructor(live: LiveSandbox, vm: SandboxVm, egress: SandboxEgress) {
    this.#live = live;
    this.#vm = vm;
    this.#egress = egress;
  }

  fork<T>(work: (ask: AskForChildren) => Promise<T>): Promise<T> {
    return this.#operate('forking', () =>
      work((children) =>
        this.#ask('fork', async () => {
          await this.#egress.tellBeforeCopy();
          return this.#vm.fork(children);
        }),
      ),
    );
  }

  snapshot<T>(work: (ask: AskForCapture) => Promise<T>): Promise<T> {
    return this.#operate('snapshotting', () =>
      work((id) => this.#ask('snapshot', () => this.#vm.snapshot(id))),
    );
  }

  /** The sandbox is not idle meanwhile. */
  #operate<T>(operation: SandboxOperation, work: () => Promise<T>): Promise<T> {
    return this.#live.operate(operation, async () => {
      const close = this.#live.open();
      try {
        return await work();
      } finally {
        close();
      }
    });
  }

  /** Tells a VM that is gone from a capture that is. */
  async #ask<T>(request: SandboxRequest, call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (!isNotFound(error)) throw error;
      if (await this.#vm.isThere()) throw captureGone(error);
      await this.#live.inTurn(() => resolveMissing(this.#live, this.#vm));
      throw this.#live.row.status === 'running' ? error : this.#live.refusal(request);
    }
  }
}
