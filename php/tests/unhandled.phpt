--TEST--
An exception that nobody can await ends the program as an uncaught one
--FILE--
<?php
use function Async\{spawn, delay, await};
spawn(function () { try { delay(60_000); } finally { echo "the others are cancelled\n"; } });
try {
    spawn(function () { throw new DomainException('thrown into the script'); });
    delay(60_000);
} catch (DomainException $e) {
    echo $e->getMessage(), "\n";
}
$kept = spawn(function () { throw new LengthException('kept'); });
delay(1);
try { await($kept); } catch (LengthException $e) { echo $e->getMessage(), "\n"; }
$done = spawn(fn() => 1);
$done->finally(fn() => throw new LogicException('in a completion callback'));
try { delay(60_000); } catch (LogicException $e) { echo $e->getMessage(), "\n"; }
spawn(function () { throw new RuntimeException('after the script'); });
echo "end of script\n";
?>
--EXPECTF--
thrown into the script
kept
in a completion callback
end of script

Fatal error: Uncaught RuntimeException: after the script in %s:%d
Stack trace:
#0 [internal function]: {closure%S}()
#1 {main}
  thrown in %s on line %d
the others are cancelled
