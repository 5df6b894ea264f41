/**
 * Rolls VMs back. Control gives each rollback an id, and the runner does it once: a repeated request joins the running
 * rollback or gets the stored result. One rollback runs at a time; meanwhile another is refused. A rollback done before
 * the last one is refused too.
 */
import { AppError } from '@coppice/contract';
import type { RollbackVm, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import type { CaptureManifest } from '../snapshot/capture-manifest.ts';
import type { CaptureObjects } from '../capture-objects/capture-objects.ts';
import { blueprintOfCapture, type CaptureBindings } from './capture-bindings.ts';
import type { Fleet } from './fleet.ts';

export interface VmRollbacksParts {
  fleet: { vms: Pick<Fleet['vms'], 'getRunning' | 'recordOf'> } & Pick<Fleet, 'replace'>;
  objects: Pick<CaptureObjects, 'use'>;
  bindings: CaptureBindings;
}

interface UnderWay {
  asked: RollbackVm;
  answer: Promise<VmRollback>;
}

export class VmRollbacks {
  readonly #parts: VmRollbacksParts;
  /** Running rollbacks, by VM id. */
  readonly #underWay = new Map<string, UnderWay>();

  constructor(parts: VmRollbacksParts) {
    this.#parts = parts;
  }

  async rollBack(id: string, asked: RollbackVm): Promise<VmRollback> {
    const underWay = this.#underWay.get(id);
    if (underWay === undefined) return this.#begin(id, asked);
    if (underWay.asked.rollback_id !== asked.rollback_id)
      throw new AppError(
        'invalid_state',
        `the rollback ${underWay.asked.rollback_id} of this VM is under way`,
      );
    assertSame(underWay.asked, asked);
    return underWay.answer;
  }

  #begin(id: string, asked: RollbackVm): Promise<VmRollback> {
    const answer = this.#findOrDo(id, asked).finally(() => this.#underWay.delete(id));
    this.#underWay.set(id, { asked, answer });
    return answer;
  }

  /** A completed rollback is answered first, because its capture may be deleted by now. */
  async #findOrDo(id: string, asked: RollbackVm): Promise<VmRollback> {
    const { fleet, objects } = this.#parts;
    const { rollbacks } = fleet.vms.recordOf(fleet.vms.getRunning(id));
    const done = rollbacks.find(({ rollback_id }) => rollback_id === asked.rollback_id);
    if (done === undefined)
      return objects.use({ id: asked.capture_id, organization: asked.organization }, (files, manifest) => {
        const old = fleet.vms.getRunning(id);
        assertShape(fleet.vms.recordOf(old).shape, manifest);
        return fleet.replace(old, blueprintOfCapture(this.#parts.bindings, files, manifest), asked);
      });
    assertSame(done, asked);
    if (done === rollbacks.at(-1)) return done;
    throw new AppError(
      'invalid_state',
      `the rollback ${asked.rollback_id} of this VM was done, and others after it: it is not done again`,
    );
  }
}

function assertSame({ rollback_id, capture_id }: RollbackVm, asked: RollbackVm): void {
  if (capture_id === asked.capture_id) return;
  throw new AppError(
    'invalid_request',
    `the rollback ${rollback_id} is to ${capture_id}, not ${asked.capture_id}`,
  );
}

function assertShape(shape: CaptureManifest['shape'], manifest: CaptureManifest): void {
  const fields = ['vcpus', 'memMiB', 'diskMiB'] as const;
  if (fields.every((field) => shape[field] === manifest.shape[field])) return;
  throw new AppError('invalid_state', 'the snapshot is of a sandbox of another size; restore it instead');
}
