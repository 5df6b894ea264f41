/**
 * What control and runner say to each other: HTTP/2 on a Unix socket, see docs/reference/runner-protocol.md.
 * Both ends parse with these schemas; the wire is snake_case.
 */
import { isErrorCode, MAX_BUILD_SHAPES, ReadyShape, type ErrorCode } from '@coppice/contract';
import { z } from 'zod';
import { EgressNote, VmEgress } from './egress-protocol.ts';
import type { HostMoment } from '../host-clock.ts';

export const RUNNER_PROTOCOL_VERSION = 1;

/** Of one organization for the registry of the image that is asked for. */
export const RegistryCredentials = z.strictObject({
  username: z.string().min(1).max(256),
  password: z.string().min(1).max(16_384),
});
export type RegistryCredentials = z.infer<typeof RegistryCredentials>;

/** Whose right to an image the registry is asked for: the credentials', or an anonymous caller's without any. */
export const ImageAccess = z.strictObject({ credentials: RegistryCredentials.optional() });
export type ImageAccess = z.infer<typeof ImageAccess>;

/** What a VM has; body of `POST /vms/{id}/admission`. */
export const VmShape = z.strictObject({
  vcpus: z.int().positive(),
  mem_mib: z.int().positive(),
  disk_mib: z.int().positive(),
});
export type VmShape = z.infer<typeof VmShape>;

/** Who asks for an image. */
const ImageRequest = z.strictObject({
  /** Pinned reference as the caller wrote it; the runner resolves it to a digest. */
  image: z.string().min(1).max(512),
  access: ImageAccess.optional(),
  /** Those who ask are served in rotation; the runner looks no further into it. */
  organization: z.string().min(1).max(128),
});

export const CreateVm = ImageRequest.extend({
  ...VmShape.shape,
  /** Absent: unrestricted, and no grants. */
  egress: VmEgress.optional(),
});
export type CreateVm = z.infer<typeof CreateVm>;

/** Of a capture: `snap…` lives until it is deleted, `hib…` is the memory of one hibernated sandbox. */
export const CaptureId = z.string().regex(/^(?:snap|hib)[0-9a-f]{20}$/u);

/** Body of `PUT /vms/{id}` for a VM that goes on from a capture. */
export const RestoreVm = z.strictObject({ capture_id: CaptureId, egress: VmEgress.optional() });
export type RestoreVm = z.infer<typeof RestoreVm>;

/** Body of `POST /vms/{id}/snapshot` and `…/hibernate`. */
export const CaptureRequest = z.strictObject({ capture_id: CaptureId });
export type CaptureRequest = z.infer<typeof CaptureRequest>;

/** Of one rollback, made by control. */
export const RollbackId = z.string().regex(/^roll[0-9a-f]{20}$/u);

/** Body of `POST /vms/{id}/rollback`. */
export const RollbackVm = z.strictObject({ rollback_id: RollbackId, capture_id: CaptureId });
export type RollbackVm = z.infer<typeof RollbackVm>;

/** Body of `POST /vms/{id}/fork`: ids of the children, which name the fork, too. */
export const ForkVm = z.strictObject({
  children: z
    .array(z.string().regex(/^run[0-9a-f]{20}$/u))
    .min(1)
    .max(100),
});
export type ForkVm = z.infer<typeof ForkVm>;

/** Body of `POST /images/prepare`: besides the default shape, templates of these are made. */
export const PrepareImage = ImageRequest.extend({ shapes: z.array(VmShape).max(MAX_BUILD_SHAPES) });
export type PrepareImage = z.infer<typeof PrepareImage>;

export const VmInfo = z.object({
  id: z.string(),
  state: z.enum(['creating', 'running']),
  /** `registry/repository:tag@sha256:…` */
  image: z.string(),
  vcpus: z.int(),
  mem_mib: z.int(),
  disk_mib: z.int(),
  /** Where the create's time went, in milliseconds by step. */
  timings_ms: z.record(z.string(), z.number()),
});
export type VmInfo = z.infer<typeof VmInfo>;

/** What a VM's process has used, read on the host. */
export const VmUsage = z.object({ cpu_ms: z.int(), mem_peak_bytes: z.int() });
export type VmUsage = z.infer<typeof VmUsage>;

/** A moment by the time since a boot of the host, which nobody can set. */
export const BootMoment = z.object({ boot_id: z.string(), ms: z.number() });
export type BootMoment = z.infer<typeof BootMoment>;

export function toBootMoment({ bootId, bootMs }: HostMoment): BootMoment {
  return { boot_id: bootId, ms: bootMs };
}

export const CaptureInfo = z.object({
  id: CaptureId,
  kind: z.enum(['snapshot', 'hibernation']),
  /** The VM that was saved. */
  vm_id: z.string(),
  image: z.string(),
  vcpus: z.int(),
  mem_mib: z.int(),
  disk_mib: z.int(),
  /** On disk; of files that others share it is counted, too. */
  size_bytes: z.int(),
  created_at: z.iso.datetime(),
  /** The same by the time since the host's boot; absent for those from before it was recorded. */
  created_on_boot: BootMoment.optional(),
  /** How long the guest stood still. */
  pause_ms: z.number(),
  /** What it needs to be restored, by name: QEMU, kernel, machine, accelerator, CPU. */
  bound_to: z.record(z.string(), z.string()),
  /** Until it was saved. */
  usage: VmUsage,
});
export type CaptureInfo = z.infer<typeof CaptureInfo>;

/** A rollback that is done: what the VM goes on from, and what the VM before it has used. */
export const VmRollback = RollbackVm.extend({ replaced_usage: VmUsage }).strip();
export type VmRollback = z.infer<typeof VmRollback>;

/** Why a VM ended: asked to, powered off from inside, its kernel panicked, or its VMM or host was lost. */
export const EndReason = z.enum(['destroyed', 'guest_shutdown', 'guest_panic', 'vmm_lost']);
export type EndReason = z.infer<typeof EndReason>;

export const VmEnd = z.object({
  id: z.string(),
  reason: EndReason,
  /** CPU time of the VMM process, read on the host. */
  cpu_ms: z.int(),
  /** Peak resident memory of the VMM process, read on the host. */
  mem_peak_bytes: z.int(),
  ended_at: z.iso.datetime(),
  /** The same by the time since the host's boot. */
  ended_on_boot: BootMoment.optional(),
  /** The last one that the VM came from: control may not have heard of it. */
  rollback: VmRollback.optional(),
});
export type VmEnd = z.infer<typeof VmEnd>;

/** Of events that were stored before spools had one. */
export const FIRST_GENERATION = 'first';

/** Where an event is among all that this runner ever told. */
const EventPlaceFields = {
  /** Of the spool: random, made with it. `seq` begins anew in the next one. */
  generation: z.string().min(1).max(64).default(FIRST_GENERATION),
  seq: z.int().positive(),
};

/** Body of `POST /events/ack`. */
export const EventPlace = z.strictObject(EventPlaceFields);
export type EventPlace = z.infer<typeof EventPlace>;

/** Stored (fsync) by the runner until control acknowledges it, so that an absent control loses nothing. */
export const RunnerEvent = z.discriminatedUnion('type', [
  z.object({ ...EventPlaceFields, type: z.literal('vm_ended'), end: VmEnd }),
  /** Before the `vm_ended` of its VM. */
  z.object({
    ...EventPlaceFields,
    type: z.literal('egress_note'),
    vm_id: z.string(),
    note: EgressNote,
  }),
]);
export type RunnerEvent = z.infer<typeof RunnerEvent>;

export const Accelerator = z.enum(['kvm', 'tcg']);
export type Accelerator = z.infer<typeof Accelerator>;

/** What QEMU is kept from: docs/security.md. */
export const Confinement = z.enum(['full', 'user-namespace', 'reduced']);
export type Confinement = z.infer<typeof Confinement>;
const Promised = z.object({ promised: z.int(), limit: z.int() });

/** What has been promised to VMs, out of what may be. */
export const CapacityStatus = z.object({
  mem_mib: Promised,
  vcpus: Promised,
  /** Really available on the host. */
  mem_available_mib: z.int(),
  /** VMs that are being started, and those that wait for their turn. */
  starts: z.object({ running: z.int(), waiting: z.int() }),
  /** The file system of the data directory. */
  disk: z.object({ free_mib: z.int(), reserve_mib: z.int() }),
});
export type CapacityStatus = z.infer<typeof CapacityStatus>;

/** How VMs are limited by the host's control groups: without a controller there is no limit; the reason is for an operator. */
export const CgroupStatus = z.object({ controllers: z.array(z.string()), reason: z.string() });
export type CgroupStatus = z.infer<typeof CgroupStatus>;

export const RunnerStatus = z.object({
  protocol: z.literal(RUNNER_PROTOCOL_VERSION),
  accelerator: Accelerator,
  accelerator_reason: z.string(),
  confinement: Confinement,
  confinement_reason: z.string(),
  /** `none`: guests get no network device, as this machine cannot filter what they would send. */
  network: z.enum(['filtered', 'none']),
  /** Why there is none; empty otherwise. */
  network_reason: z.string(),
  max_vcpus: z.int(),
  max_mem_mib: z.int(),
  vms: z.int(),
  /** Of them, those that wait for room on the host's disk. */
  paused_vms: z.int(),
  capacity: CapacityStatus,
  cgroups: CgroupStatus,
});
export type RunnerStatus = z.infer<typeof RunnerStatus>;

export const PreparedImage = z.object({
  /** Resolved reference, `registry/repository:tag@sha256:…`. */
  image: z.string(),
  digest: z.string(),
  size_bytes: z.int(),
  prepared_at: z.iso.datetime(),
  status: z.enum(['ready', 'preparing']),
  shapes: z.array(ReadyShape),
});
export type PreparedImage = z.infer<typeof PreparedImage>;

export const RunnerError = z.object({
  code: z.custom<ErrorCode>(isErrorCode),
  message: z.string().max(4096),
});
export type RunnerError = z.infer<typeof RunnerError>;

/** Answer of `POST /vms/{id}/fork`; children in the order of the request. */
export const ForkedVms = z.object({
  pause_ms: z.number(),
  children: z.array(z.union([z.object({ vm: VmInfo }), z.object({ error: RunnerError })])),
});
export type ForkedVms = z.infer<typeof ForkedVms>;

export const PrepareProgress = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('step'),
    step: z.enum(['resolve', 'pull', 'flatten', 'template']),
    /** Of the template. */
    shape: VmShape.optional(),
    elapsed_ms: z.number(),
  }),
  /** How far the step has come, a few times a second at most. */
  z.object({
    type: z.literal('progress'),
    step: z.enum(['pull', 'flatten']),
    done_bytes: z.int(),
    total_bytes: z.int(),
    elapsed_ms: z.number(),
  }),
  /** The image is there, whatever becomes of its templates. */
  z.object({ type: z.literal('prepared'), image: PreparedImage }),
  z.object({ type: z.literal('done'), image: PreparedImage }),
  z.object({ type: z.literal('error'), error: RunnerError }),
]);
export type PrepareProgress = z.infer<typeof PrepareProgress>;
