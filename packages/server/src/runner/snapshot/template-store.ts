/**
 * Templates: a VM made once for each (image, shape, kernel, agent, QEMU), and saved when its agent is up and no user
 * code has run. Every sandbox is a copy-on-write view of one. The boot does not depend on the image, so it is done once
 * for each shape and saved as well.
 *
 * The RAM file must never change once it is made: a private mapping shows later writes to pages not yet copied.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { syncLater } from '../../lib/files/durable-file.ts';
import { bindToSpan, traced } from '../../lib/tracing/tracing.ts';
import { templateKey, type CacheLeases } from '../cache/cache-leases.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import { GUEST_MAC, MACHINE_VERSION, type TemplateShape } from '../vm/shape.ts';
import { kernelCommandLine } from '../vm/kernel-command-line.ts';
import type { SavedState } from '../vm/vmm.ts';
import { BootedGuestError } from './boot-in-time.ts';
import { BuildQueue } from './build-queue.ts';
import { DEVICES_NAME } from '../vm/vm-files.ts';
import {
  TEMPLATE_FILES,
  TemplateBuilder,
  type BootJob,
  type TemplateBuilderOptions,
  type TemplateJob,
} from './template-builder.ts';
import { TemplateCatalogue } from './template-catalogue.ts';

/** Raise when the content of a template's directory changes. Templates of other versions are not used. */
const FORMAT = 2;

/** Disk space of a template besides memory: device state and the written part of the disk. */
const BOOT_DISK_MIB = 64;
/** Disk size in the key of a booted guest, which has no disk of an image. */
const NO_DISK = 0;

export interface TemplateFiles extends SavedState {
  /** The ext4 file under the disk's overlays. */
  basePath: string;
  /** The qcow2 overlay of that base, copied for each VM. */
  scratchPath: string;
}

export interface Bindings {
  versions: Readonly<Record<string, string>>;
  host: Readonly<Record<string, string>>;
}

/** A request for a template. The caller holds a lease of it from before. */
export interface TemplateRequest {
  image: StoredImage;
  shape: TemplateShape;
  organization: string;
  /** Aborted when the template is not needed any more. */
  signal?: AbortSignal | undefined;
}

export interface TemplateStoreOptions extends TemplateBuilderOptions {
  directory: string;
  leases: CacheLeases;
  /** The bindings of saved state besides the image. `host` may return to an earlier value; the versions do not. */
  bindings: Bindings;
  /** Called after each template is stored. */
  onStored?: () => void;
  /** Runs a boot when there is a start slot and room for what it writes; `signal` ends the wait. */
  inTurn: (needs: { diskMiB: number; signal: AbortSignal }, boot: () => Promise<void>) => Promise<void>;
}

export class TemplateStore {
  readonly #options: TemplateStoreOptions;
  readonly #queue = new BuildQueue();
  readonly #builder: Pick<TemplateBuilder, 'boot' | 'build'>;
  readonly catalogue: TemplateCatalogue;

  private constructor(options: TemplateStoreOptions, builder: Pick<TemplateBuilder, 'boot' | 'build'>) {
    this.#options = options;
    this.#builder = builder;
    const madeWith = hash({
      format: FORMAT,
      machine: MACHINE_VERSION,
      mac: GUEST_MAC,
      ...options.bindings.versions,
    });
    this.catalogue = TemplateCatalogue.open(options.directory, madeWith);
  }

  /** Opens the store and removes what an interrupted build left. */
  static open(
    options: TemplateStoreOptions,
    builder: Pick<TemplateBuilder, 'boot' | 'build'> = new TemplateBuilder(options),
  ): TemplateStore {
    mkdirSync(options.directory, { recursive: true, mode: 0o711 });
    return new TemplateStore(options, builder);
  }

  /** Key of the machine of all templates that serve creates. */
  get machine(): string {
    return this.#options.machine;
  }

  /**
   * Returns the name of the template's directory. It differs for a rebuilt image, whose bytes the guest has not read.
   */
  keyOf({ digest, preparedAt }: Pick<StoredImage, 'digest' | 'preparedAt'>, shape: TemplateShape): string {
    return this.#keyOf({ image: digest, imagePreparedAt: preparedAt.toISOString() }, shape);
  }

  #keyOf(image: Readonly<Record<string, string>>, shape: TemplateShape): string {
    return hash({
      format: FORMAT,
      machine: MACHINE_VERSION,
      ...image,
      // JSON omits it if undefined: templates from before the field keep their keys.
      cpu: shape.cpu,
      shape: [shape.accelerator, shape.vcpus, shape.memMiB, shape.diskMiB],
      mac: this.#options.network.absence === undefined ? GUEST_MAC : null,
      commandLine: kernelCommandLine(shape.accelerator),
      ...this.#options.bindings.versions,
      ...this.#options.bindings.host,
    });
  }

  filesOf(key: string): TemplateFiles {
    const directory = join(this.#options.directory, key);
    return {
      ramPath: join(directory, TEMPLATE_FILES.ram),
      statePath: join(directory, DEVICES_NAME),
      wasBusy: false,
      basePath: join(directory, TEMPLATE_FILES.base),
      scratchPath: join(directory, TEMPLATE_FILES.scratch),
    };
  }

  /** Returns the shapes of the image for which a create finds a template. */
  listReady(image: Pick<StoredImage, 'digest' | 'preparedAt'>): TemplateShape[] {
    return this.catalogue
      .shapesOf(image.digest)
      .filter((shape) => this.catalogue.has(this.keyOf(image, shape)));
  }

  /** Builds the template if it does not exist. Resolves when it exists. */
  async ensure({ image, shape, organization, signal: needed }: TemplateRequest): Promise<void> {
    const key = this.keyOf(image, shape);
    const made = this.catalogue.find(key);
    if (made !== undefined) return made.lastUse.mark();
    const memories = this.catalogue.has(this.#bootedKeyOf(shape)) ? 1 : 2;
    const diskMiB = memories * shape.memMiB + BOOT_DISK_MIB;
    // The queue may call it when the build of another request ends.
    const build = bindToSpan((signal: AbortSignal) =>
      this.#options.inTurn({ diskMiB, signal }, () => this.#make({ key, image, shape, signal })),
    );
    await this.#queue.run({ key, organization, signal: needed, build });
  }

  /** Makes one template. The queue runs one build at a time. */
  async #make(job: Omit<TemplateJob, 'directory' | 'booted'>): Promise<void> {
    // An abandoned build may have been completed all the same.
    if (this.catalogue.has(job.key)) return;
    const bootedKey = this.#bootedKeyOf(job.shape);
    // Hold it from before the lookup.
    using lease = this.#options.leases.open();
    lease.add(templateKey(bootedKey));
    try {
      await this.#build(job, bootedKey);
    } catch (error) {
      if (!(error instanceof BootedGuestError)) throw error;
      this.#options.log.warn(
        { err: error, template: bootedKey },
        'a booted guest cannot be used; booting a new one',
      );
      await this.catalogue.evict(bootedKey);
      await this.#build(job, bootedKey);
    }
  }

  async #build(job: Omit<TemplateJob, 'directory' | 'booted'>, bootedKey: string): Promise<void> {
    const shape = { ...job.shape, diskMiB: NO_DISK };
    const bootJob = { key: bootedKey, image: undefined, shape, signal: job.signal };
    if (!this.catalogue.has(bootedKey))
      await traced('template.boot', () =>
        this.#store(bootJob, (directory) => this.#builder.boot({ ...bootJob, directory })),
      );
    const booted = this.filesOf(bootedKey);
    const { isInTime } = await traced('template.build', () =>
      this.#store(job, (directory) => this.#builder.build({ ...job, directory, booted })),
    );
    // Good enough for the waiting callers, but not for others.
    if (!isInTime) await this.catalogue.evict(bootedKey);
  }

  #bootedKeyOf(shape: TemplateShape): string {
    return this.#keyOf({}, { ...shape, diskMiB: NO_DISK });
  }

  async #store<T>(
    { key, image, shape, signal }: Omit<BootJob, 'directory'> & { image: StoredImage | undefined },
    make: (directory: string) => Promise<T>,
  ): Promise<T> {
    const { cpu: _cpu, ...size } = shape;
    const { directory, onStored, log } = this.#options;
    const started = performance.now();
    const building = join(directory, `${key}.building`);
    await using undo = new AsyncDisposableStack();
    undo.defer(() => {
      rmSync(building, { recursive: true, force: true });
      if (signal.aborted && !this.catalogue.has(key))
        log.info({ template: key, shape: size }, 'template not made: no caller waits for it');
    });
    rmSync(building, { recursive: true, force: true });
    mkdirSync(building, { mode: 0o711 });
    const result = await make(building);
    this.catalogue.writeRecord(building, { image, shape });
    await syncLater(building);
    const target = join(directory, key);
    // An existing directory is unusable, or it would have been used.
    rmSync(target, { recursive: true, force: true });
    renameSync(building, target);
    await syncLater(directory);
    this.catalogue.add(key);
    onStored?.();
    const made = { template: key, shape: size, elapsed_ms: Math.round(performance.now() - started) };
    if (image === undefined) log.info(made, 'guest booted, for templates of this shape');
    else log.info({ ...made, image: image.reference }, 'template made');
    return result;
  }
}

function hash(bound: Readonly<Record<string, unknown>>): string {
  return createHash('sha256').update(JSON.stringify(bound)).digest('hex').slice(0, 32);
}
