; The selection of the library's code that this processor supports.

; cpuid and xgetbv as functions, because LLVM has no intrinsics for them:
; (i32 leaf, i32 subleaf, ptr to four i32), and () with an i64 as result.
@cpuid = internal constant [31 x i8] c"\F3\0F\1E\FA\53\49\89\D0\89\F8\89\F1\0F\A2\41\89\00\41\89\58\04\41\89\48\08\41\89\50\0C\5B\C3", section ".text", align 16
@xgetbv = internal constant [17 x i8] c"\F3\0F\1E\FA\31\C9\0F\01\D0\48\C1\E2\20\48\09\D0\C3", section ".text", align 16

; Return the number of the library's last processor that this one supports, otherwise
; -1.
define internal i64 @processor() #0 {
entry:
  %found = alloca [4 x i32], align 16
  call void @cpuid(i32 0, i32 0, ptr %found)
  %last = load i32, ptr %found
  %knows = icmp uge i32 %last, 7
  br i1 %knows, label %ask, label %none
ask:
  call void @cpuid(i32 1, i32 0, ptr %found)
  %c.at = getelementptr i32, ptr %found, i64 2
  %one.c = load i32, ptr %c.at
  call void @cpuid(i32 7, i32 0, ptr %found)
  %seven.b.at = getelementptr i32, ptr %found, i64 1
  %seven.b = load i32, ptr %seven.b.at
  %seven.c = load i32, ptr %c.at
  ; Processors without subleaf 1 return unrelated data for it.
  %parts = load i32, ptr %found
  call void @cpuid(i32 7, i32 1, ptr %found)
  %part.told = load i32, ptr %found
  %has.part = icmp ne i32 %parts, 0
  %part.a = select i1 %has.part, i32 %part.told, i32 0
  br label %next
next:
  %left = phi i64 [ $PROCESSORS, %ask ], [ %k, %look ], [ %k, %states ]
  %k = sub i64 %left, 1
  %more = icmp sge i64 %k, 0
  br i1 %more, label %look, label %none
look:
  %needs.at = getelementptr %Needs, ptr @needs, i64 %k
  %needs = load %Needs, ptr %needs.at
  %one.c.needed = extractvalue %Needs %needs, 0
  %seven.b.needed = extractvalue %Needs %needs, 1
  %seven.c.needed = extractvalue %Needs %needs, 2
  %part.a.needed = extractvalue %Needs %needs, 3
  %saved.needed = extractvalue %Needs %needs, 4
  %one.c.kept = and i32 %one.c, %one.c.needed
  %one.c.fine = icmp eq i32 %one.c.kept, %one.c.needed
  %seven.b.kept = and i32 %seven.b, %seven.b.needed
  %seven.b.fine = icmp eq i32 %seven.b.kept, %seven.b.needed
  %seven.c.kept = and i32 %seven.c, %seven.c.needed
  %seven.c.fine = icmp eq i32 %seven.c.kept, %seven.c.needed
  %part.a.kept = and i32 %part.a, %part.a.needed
  %part.a.fine = icmp eq i32 %part.a.kept, %part.a.needed
  %some.fine = and i1 %one.c.fine, %seven.b.fine
  %others.fine = and i1 %seven.c.fine, %part.a.fine
  %fine = and i1 %some.fine, %others.fine
  br i1 %fine, label %system, label %next
system:
  ; Check that the system saves vector registers. Leaf 1 has confirmed xgetbv.
  %wanted = icmp ne i64 %saved.needed, 0
  br i1 %wanted, label %states, label %this
states:
  %saved = call i64 @xgetbv()
  %saved.kept = and i64 %saved, %saved.needed
  %is.saved = icmp eq i64 %saved.kept, %saved.needed
  br i1 %is.saved, label %this, label %next
this:
  ret i64 %k
none:
  ret i64 -1
}

attributes #0 = { nounwind }
