/** Forks a running sandbox and takes snapshots of it. */
import type { SandboxRequest } from '@coppice/contract';
import type { CaptureInfo, ForkedVms, ForkVm } from '../../../lib/protocol/runner-protocol.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import { resolveMissing } from './missing-vm.ts';
import type { SandboxEgress } from './sandbox-egress.ts';
import { captureGone, isNotFound, type SandboxVm } from './sandbox-vm.ts';

export interface CopiesParts {
  vm: SandboxVm;
  egress: SandboxEgress;
}

export class SandboxCopies {
  readonly #live: LiveSandbox;
  readonly #vm: SandboxVm;
  readonly #egress: SandboxEgress;

  constructor(live: LiveSandbox, { vm, egress }: CopiesParts) {
    this.#live = live;
    this.#vm = vm;
    this.#egress = egress;
  }

  /**
   * Waits until no other operation runs, and keeps later ones waiting until the result is disposed. The sandbox counts
   * as in use meanwhile. Throws `invalid_state` if it cannot be copied.
   */
  async begin(request: 'fork' | 'snapshot'): Promise<AsyncDisposable> {
    const begun = Promise.withResolvers<void>();
    const finished = Promise.withResolvers<void>();
    const operated = this.#live.operate(request, async () => {
      const close = this.#live.open();
      begun.resolve();
      await finished.promise;
      close();
    });
    operated.catch(begun.reject);
    await begun.promise;
    return {
      [Symbol.asyncDispose]: () => {
        finished.resolve();
        return operated;
      },
    };
  }

  /** Has the runner make the children's VMs. Call only within an operation from {@link begin}. */
  fork(fork: ForkVm): Promise<ForkedVms> {
    return this.#ask('fork', async () => {
      await this.#egress.tellBeforeCopy();
      return this.#vm.fork(fork);
    });
  }

  /** Has the runner save the VM. Call only within an operation from {@link begin}. */
  snapshot(id: string): Promise<CaptureInfo> {
    return this.#ask('snapshot', () => this.#vm.snapshot(id));
  }

  /** Distinguishes a missing VM from a missing capture. */
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
