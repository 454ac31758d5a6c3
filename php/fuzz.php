<?php
// Random operations on pools, channels, fibers and coroutines, with a random end: test.sh runs it with many
// seeds. It must neither crash nor hang, whatever it prints.
//
//     php php/fuzz.php SEED

use function Async\{spawn, await, delay, suspend, await_all, timeout, protect};
mt_srand((int)$argv[1]);
$ends = ['none','exit','fatal','throw','none','none','oom'];
$end = $ends[mt_rand(0,6)];
$pools = [];
for ($i=0;$i<3;$i++) $pools[] = new Async\Pool(
  factory: function() { if (mt_rand(0,9)==0) throw new Exception('f'); if (mt_rand(0,1)) delay(mt_rand(0,2)); return new ArrayObject; },
  destructor: mt_rand(0,1) ? function($r) { if (mt_rand(0,3)==0) suspend(); if (mt_rand(0,9)==0) throw new Exception('d'); } : null,
  healthcheck: fn() => mt_rand(0,5) > 0,
  beforeAcquire: mt_rand(0,1) ? function() { if (mt_rand(0,2)==0) delay(1); return mt_rand(0,5) > 0; } : null,
  beforeRelease: mt_rand(0,1) ? function() { if (mt_rand(0,2)==0) suspend(); return mt_rand(0,5) > 0; } : null,
  min: 0, max: mt_rand(1,4), healthcheckInterval: mt_rand(0,1)*2);
$ch = new Async\Channel(mt_rand(0,2));
$all = [];
function work($depth) {
  global $pools, $ch, $all, $end;
  for ($k=0;$k<mt_rand(1,6);$k++) {
    try {
      switch (mt_rand(0,13)) {
        case 0: suspend(); break;
        case 1: delay(mt_rand(0,3)); break;
        case 2: case 3: case 4: case 5:
          $p = $pools[mt_rand(0,2)];
          $r = $p->acquire(mt_rand(0,3) ? mt_rand(1,8) : 0);
          try { if (mt_rand(0,1)) delay(mt_rand(0,2)); } finally { $p->release($r); }
          break;
        case 6: if ($depth < 4) { $c = spawn('work', $depth+1); if (mt_rand(0,2)) $all[] = $c; if (mt_rand(0,1)) await($c, mt_rand(0,1) ? timeout(mt_rand(1,4)) : null); } break;
        case 7: if ($all) $all[array_rand($all)]->cancel(); break;
        case 8: $ch->send($k, timeout(2)); break;
        case 9: $ch->recv(timeout(2)); break;
        case 10: $f = new Fiber(function() { suspend(); Fiber::suspend(1); delay(1); }); $f->start(); if (mt_rand(0,1)) $f->resume(); break;
        case 11: protect(function() { delay(1); }); break;
        case 12: if (mt_rand(0,5)==0) $pools[mt_rand(0,2)]->deactivate(); else $pools[mt_rand(0,2)]->activate(); break;
        case 13: if (mt_rand(0,20)==0) { if ($end=='exit') exit(0); if ($end=='fatal') trigger_error('x', E_USER_ERROR); if ($end=='throw') throw new Error('y'); if ($end=='oom') { $x=[]; for($i=0;$i<200;$i++) $x[]=str_repeat('x',1000000);} } else gc_collect_cycles(); break;
      }
    } catch (Exception $e) {} 
  }
}
for ($i=0;$i<12;$i++) $all[] = spawn('work', 0);
try { await_all($all, timeout(60)); } catch (Throwable $e) {}
if (mt_rand(0,1)) foreach ($pools as $p) { try { $p->close(); } catch (Exception $e) {} }
