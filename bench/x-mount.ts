import { DiskBench, SHAPE } from './fixtures/disk-bench.ts';
await using bench = await DiskBench.start(1);
const disk = await bench.createDisk(4);
for (let round = 0; round < 3; round += 1) {
  await bench.nextWarm();
  const started = performance.now();
  const { id } = await bench.api.create({ ...SHAPE, disk });
  console.log('create', performance.now() - started, JSON.stringify(await bench.stepsOf(id)));
  console.log(
    await bench.run(
      id,
      `python3 - <<'E'
import ctypes,time,os
c=ctypes.CDLL(None,use_errno=True)
o=b"discard,noinit_itable,no_prefetch_block_bitmaps,errors=remount-ro"
os.chdir('/')
for i in range(6):
    a=time.monotonic(); r=c.umount2(b"/workspace",0); b=time.monotonic()
    f=os.open("/dev/vdc",os.O_RDONLY); os.pread(f,4096,0); os.close(f); d=time.monotonic()
    m=c.mount(b"/dev/vdc",b"/workspace",b"ext4",1024,o); e=time.monotonic()
    print("umount %d %.1f ms, open+read %.1f ms, mount %d %.1f ms"%(r,(b-a)*1e3,(d-b)*1e3,m,(e-d)*1e3), flush=True)
E`,
    ),
  );
  await bench.api.destroy(id);
  await bench.untilFree(disk);
}
