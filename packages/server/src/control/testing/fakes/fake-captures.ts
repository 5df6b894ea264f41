/** Captures and forks of the fake runner: entries in a map, like its VMs. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import type { VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import { hostMoment, type HostMoment } from '../../../lib/host-clock.ts';
import {
  CaptureRequest,
  ForkVm,
  RollbackVm,
  toBootMoment,
  type CaptureInfo,
  type ForkedVms,
  type RestoreVm,
  type VmInfo,
  type VmRollback,
} from '../../../lib/protocol/runner-protocol.ts';
import type { FakeCommands } from './fake-commands.ts';
import type { FakeDisks } from './fake-disks.ts';
import { answer, noVm, readAll } from './fake-answers.ts';

/** Usage of every period of running. */
export const STRETCH_USAGE = { cpu_ms: 1000, mem_peak_bytes: 90_000_000 };

const NOTHING = (): void => undefined;

export type CaptureHook = (id: string, captureId: string) => Promise<void> | void;

/** Sets the outbound network of a VM: a given one, or that of another VM. */
type Inherit = (id: string, from: VmEgress | string | undefined) => void;

export interface FakeCapturesParts {
  vms: Map<string, VmInfo>;
  disks: FakeDisks;
  /** Those of a capture are kept under its id. */
  commands: FakeCommands;
  inherit: Inherit;
  /** Returns the moment of a simulated host. */
  host: () => HostMoment | undefined;
}

export class FakeCaptures {
  readonly saved = new Map<string, CaptureInfo>();
  /** The object store, from which a restore fetches what is not saved here. */
  objects: ReadonlyMap<string, CaptureInfo> = new Map();
  /** Ids of VMs that are being restored. */
  readonly restoring = new Set<string>();
  /** Completed rollbacks of each sandbox, in their order. */
  readonly rollbacks = new Map<string, VmRollback[]>();
  /** Size of captures that are made from now on. */
  sizeBytes = 1 << 20;
  /** Called before the action; each may throw the error to answer instead. */
  onSnapshot: CaptureHook = NOTHING;
  onHibernate: CaptureHook = NOTHING;
  onRollback: CaptureHook = NOTHING;
  onRestore: CaptureHook = NOTHING;
  onFork: (id: string, children: string[]) => Promise<void> | void = NOTHING;
  /** Called for each child; may throw the error for its place in the answer. */
  onChild: (id: string, index: number) => void = NOTHING;
  onRemove: (captureId: string) => Promise<void> | void = NOTHING;
  /** Called after the action, before it is answered. */
  beforeAnswer: (what: string) => Promise<void> | void = NOTHING;
  readonly #vms: Map<string, VmInfo>;
  readonly #inherit: Inherit;
  readonly #disks: FakeDisks;
  readonly #commands: FakeCommands;
  readonly #host: FakeCapturesParts['host'];
  readonly #rolling = new Map<string, Promise<VmRollback>>();

  constructor({ vms, disks, commands, inherit, host }: FakeCapturesParts) {
    this.#disks = disks;
    this.#commands = commands;
    this.#vms = vms;
    this.#inherit = inherit;
    this.#host = host;
  }

  /** Removes all hooks, so that nothing fails from now on. */
  reset(): void {
    this.onSnapshot = NOTHING;
    this.onHibernate = NOTHING;
    this.onRollback = NOTHING;
    this.onRestore = NOTHING;
    this.onFork = NOTHING;
    this.onChild = NOTHING;
    this.onRemove = NOTHING;
    this.beforeAnswer = NOTHING;
    this.sizeBytes = 1 << 20;
  }

  /** Whether any capture of this sandbox exists. */
  has(sandboxId: string): boolean {
    return [...this.saved.values()].some((capture) => capture.vm_id === sandboxId);
  }

  /** Answers a request about captures. Returns false for any other request. */
  async take(stream: ServerHttp2Stream, request: string): Promise<boolean> {
    if (request === 'GET /captures') {
      answer(stream, 200, [...this.saved.values()]);
      return true;
    }
    const [, captureId] = /^DELETE \/captures\/(\w+)$/u.exec(request) ?? [];
    const [, id, action] = /^POST \/vms\/(\w+)\/(snapshot|hibernate|rollback|fork)$/u.exec(request) ?? [];
    if (captureId !== undefined) await this.#remove(stream, captureId);
    else if (id !== undefined && action !== undefined) await this.#act(stream, id, action);
    else return false;
    return true;
  }

  async restore(id: string, { capture_id: captureId, egress, workspace }: RestoreVm): Promise<VmInfo> {
    const there = this.#vms.get(id);
    if (there !== undefined) return there;
    this.restoring.add(id);
    try {
      await this.onRestore(id, captureId);
    } finally {
      this.restoring.delete(id);
    }
    const { image, vcpus, mem_mib, disk_mib, workspace: captured } = this.#find(captureId);
    if ((captured === undefined) !== (workspace === undefined))
      throw new AppError('invalid_request', 'workspace: is required exactly if the captured VM had one');
    const mounted = this.#disks.attach(id, workspace);
    const vm: VmInfo = {
      ...(mounted === undefined ? {} : { workspace: mounted }),
      id,
      state: 'running',
      image,
      vcpus,
      mem_mib,
      disk_mib,
      timings_ms: {},
    };
    this.#vms.set(id, vm);
    this.#commands.copy(captureId, id);
    this.#inherit(id, egress);
    await this.beforeAnswer('restore');
    return vm;
  }

  async #act(stream: ServerHttp2Stream, id: string, action: string): Promise<void> {
    const body: unknown = JSON.parse((await readAll(stream)).toString('utf8'));
    if (action === 'fork') {
      const forked = await this.#fork(id, ForkVm.parse(body));
      await this.beforeAnswer(action);
      return answer(stream, 200, forked);
    }
    if (action === 'rollback') {
      const done = await this.#rollBack(id, RollbackVm.parse(body));
      await this.beforeAnswer(action);
      return answer(stream, 200, done);
    }
    const { capture_id: captureId } = CaptureRequest.parse(body);
    const save = action === 'snapshot' ? this.#snapshot(id, captureId) : this.#hibernate(id, captureId);
    const result = await save;
    await this.beforeAnswer(action);
    return answer(stream, action === 'snapshot' ? 201 : 200, result);
  }

  async #snapshot(id: string, captureId: string): Promise<CaptureInfo> {
    const there = this.saved.get(captureId);
    if (there !== undefined) return there;
    const vm = this.#getVm(id);
    await this.onSnapshot(id, captureId);
    return this.#save(vm, captureId, 'snapshot');
  }

  async #hibernate(id: string, captureId: string): Promise<CaptureInfo> {
    const there = this.saved.get(captureId);
    if (there !== undefined) return there;
    const vm = this.#getVm(id);
    await this.onHibernate(id, captureId);
    const capture = this.#save(vm, captureId, 'hibernation');
    this.#vms.delete(id);
    return capture;
  }

  /** Does each id once, as the runner does; a second request joins a running rollback. */
  #rollBack(id: string, asked: RollbackVm): Promise<VmRollback> {
    const { rollback_id } = asked;
    const rolling =
      this.#rolling.get(rollback_id) ??
      this.#rollBackOnce(id, asked).finally(() => this.#rolling.delete(rollback_id));
    this.#rolling.set(rollback_id, rolling);
    return rolling;
  }

  async #rollBackOnce(id: string, asked: RollbackVm): Promise<VmRollback> {
    this.#getVm(id);
    const done = this.rollbacks.get(id) ?? [];
    const before = done.find(({ rollback_id }) => rollback_id === asked.rollback_id);
    if (before !== undefined) return before;
    await this.onRollback(id, asked.capture_id);
    this.#getVm(id);
    this.#find(asked.capture_id);
    this.#disks.rollBack(id, asked.workspace);
    this.#commands.copy(asked.capture_id, id);
    this.#commands.cutWatches(id);
    const rollback = { ...asked, replaced_usage: STRETCH_USAGE };
    this.rollbacks.set(id, [...done, rollback]);
    return rollback;
  }

  async #fork(id: string, { children, disks }: ForkVm): Promise<ForkedVms> {
    const vm = this.#getVm(id);
    await this.onFork(id, children);
    const answers = children.map((child, index) =>
      this.#makeChild(vm, { id: child, disk: disks?.[index] }, index),
    );
    return { pause_ms: 20, children: answers };
  }

  #makeChild(
    parent: VmInfo,
    { id, disk }: { id: string; disk: string | undefined },
    index: number,
  ): ForkedVms['children'][number] {
    let workspace: VmInfo['workspace'];
    try {
      this.onChild(id, index);
      workspace = this.#disks.forkFor(id, parent.id, disk);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return { error: { code: error.code, message: error.message } };
    }
    const { workspace: _, ...shape } = parent;
    const vm: VmInfo = { ...shape, id, ...(workspace === undefined ? {} : { workspace }) };
    this.#vms.set(id, vm);
    this.#commands.copy(parent.id, id);
    this.#inherit(id, parent.id);
    return { vm };
  }

  async #remove(stream: ServerHttp2Stream, captureId: string): Promise<void> {
    await this.onRemove(captureId);
    if (!this.saved.delete(captureId)) throw new AppError('not_found', `there is no capture ${captureId}`);
    stream.respond({ ':status': 204 }, { endStream: true });
  }

  #save(vm: VmInfo, captureId: string, kind: CaptureInfo['kind']): CaptureInfo {
    const { id, image, vcpus, mem_mib, disk_mib } = vm;
    const now = this.#host() ?? hostMoment();
    const workspace = this.#disks.capture(id);
    this.#commands.copy(id, captureId);
    const capture: CaptureInfo = {
      id: captureId,
      kind,
      vm_id: id,
      image,
      vcpus,
      mem_mib,
      disk_mib,
      size_bytes: this.sizeBytes,
      created_at: new Date(now.wallMs).toISOString(),
      created_on_boot: toBootMoment(now),
      pause_ms: 20,
      bound_to: { qemu: '10.0.2', kernel: '6.12' },
      usage: STRETCH_USAGE,
      ...(workspace === undefined ? {} : { workspace }),
    };
    this.saved.set(captureId, capture);
    return capture;
  }

  #getVm(id: string): VmInfo {
    const vm = this.#vms.get(id);
    if (vm === undefined) throw noVm(id);
    return vm;
  }

  #find(captureId: string): CaptureInfo {
    const capture = this.saved.get(captureId) ?? this.objects.get(captureId);
    if (capture !== undefined) this.saved.set(captureId, capture);
    if (capture === undefined) throw new AppError('not_found', `there is no capture ${captureId}`);
    return capture;
  }
}
